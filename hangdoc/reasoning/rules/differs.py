"""What the findings about a setting that differs between ranks have in common: as the cause of a blockage, or by itself."""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes.disagreements import Differs
from hangdoc.reasoning.model import Run


class Wording(NamedTuple):
    """The texts of one rule. `subject` and `remedy` contain `{name}`, `evidence` contains `{name}` and `{value}`."""

    rule: tuple[str, str]
    probe: str
    subject: str
    evidence: str
    missing: str
    """Evidence where the value is not set."""
    remedy: str
    as_cause: float
    """Confidence if it explains a blockage."""
    decisive: float
    """Confidence by itself, if it changes which collectives the ranks call."""
    other: float


def say(wording: Wording, run: Run, blockage: Blockage) -> Finding:
    """The finding about a blockage that a difference explains."""
    cause = blockage.cause
    assert isinstance(cause, Differs)  # noqa: S101  (see the ABOUT of the rules)
    return words.blocked(
        wording.rule,
        blockage,
        confidence=wording.as_cause,
        summary=_summary(wording, cause),
        evidence=[*_evidence(wording, cause), *words.class_evidence(run.waiting)],
        remedy=wording.remedy.format(name=cause.name),
    )


def check(wording: Wording, run: Run, what: type[Differs]) -> Iterator[Finding]:
    """Every difference of a kind that does not explain a blockage."""
    explained = {one.cause.name for one in run.blockages if isinstance(one.cause, Differs)}
    for found in run.differing:
        if isinstance(found, what) and found.name not in explained:
            yield words.finding(
                *wording.rule,
                confidence=wording.decisive if found.decisive else wording.other,
                culprits=found.values.odd,
                summary=_summary(wording, found),
                evidence=_evidence(wording, found),
                remedy=wording.remedy.format(name=found.name),
            )


def _summary(wording: Wording, found: Differs) -> str:
    text = f"{wording.subject.format(name=found.name)} differs between ranks: {words.values_by_rank(found.values)}"
    return text + (f"; it {found.why}" if found.why else "")


def _evidence(wording: Wording, found: Differs) -> list[Evidence]:
    return [
        Evidence(
            rank=group[0],
            probe=wording.probe,
            text=(wording.missing if value is None else wording.evidence).format(
                name=found.name, value=(value or "")[:60]
            )
            + words.also(group),
        )
        for value, group in found.values.values[:8]
    ]
