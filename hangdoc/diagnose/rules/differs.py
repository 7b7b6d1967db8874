"""What the findings about one thing that differs between ranks have in common: as the cause of a blockage, or by itself."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes.disagreements import Differs
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding


class Wording(NamedTuple):
    """A rule's own words. `remedy` names the thing as `{name}`; `evidence` has `{name}` and `{value}`."""

    rule: tuple[str, str]
    probe: str
    evidence: str
    remedy: str
    as_cause: float
    """Confidence where it explains a blockage."""
    decisive: float
    """Confidence by itself, where it changes what the ranks say to each other."""
    other: float


def say(wording: Wording, run: Run, blockage: Blockage) -> Finding:
    """The finding about a blockage that a difference explains."""
    cause = blockage.cause
    assert isinstance(cause, Differs)  # noqa: S101  (see the ABOUT of the rules)
    return words.blocked(
        wording.rule,
        blockage,
        confidence=wording.as_cause,
        summary=_summary(cause),
        evidence=[*_evidence(wording, cause), *words.class_evidence(run.waiting)],
        remedy=wording.remedy.format(name=cause.name),
    )


def check(wording: Wording, run: Run, differences: Iterable[Differs]) -> Iterator[Finding]:
    """Each difference that explains no blockage."""
    explained = {one.cause.name for one in run.blockages if isinstance(one.cause, Differs)}
    for found in differences:
        if found.name not in explained:
            yield words.finding(
                *wording.rule,
                severity="warning",
                confidence=wording.decisive if found.decisive else wording.other,
                culprits=found.values.odd,
                victims=(),
                summary=_summary(found),
                evidence=_evidence(wording, found),
                remedy=wording.remedy.format(name=found.name),
            )


def _summary(found: Differs) -> str:
    return f"{found.name} differs between ranks: {words.said(found.values)}" + (f"; {found.why}" if found.why else "")


def _evidence(wording: Wording, found: Differs) -> list[Evidence]:
    return [
        Evidence(
            rank=group[0],
            probe=wording.probe,
            text=wording.evidence.format(name=found.name, value="not set" if value is None else value[:60])
            + f" ({words.ranks(group)})",
        )
        for value, group in found.values.values[:8]
    ]
