"""What the findings about a setting that differs between ranks have in common: as the cause of a blockage, or by itself."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hangdoc.diagnosis import Evidence, Severity
from hangdoc.reasoning.model.cause import Differs
from hangdoc.reasoning.model.rank import Class
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import Draft
from hangdoc.reasoning.text import words

_SHOWN = 4


class Wording(NamedTuple):
    """The texts of one rule. They contain `{name}`, and `evidence` also `{value}`."""

    probe: str
    subject: str
    evidence: str
    missing: str
    """Evidence where the value is not set."""
    remedy: str


def draft(
    wording: Wording,
    found: Sequence[Differs],
    confidence: float,
    waiting: Iterable[Class] = (),
    severity: Severity | None = None,
) -> Draft:
    """The finding about one or more differences, the most important first. `waiting`: the ranks that it keeps waiting."""
    first, *others = found
    why = f"; it {first.why}" if first.why else ""
    names = ", ".join(wording.subject.format(name=other.name) for other in others[:_SHOWN])
    more = f" ({names} {'differs' if len(others) == 1 else 'differ'} too)" if others else ""
    subject = wording.subject.format(name=first.name)
    return Draft(
        confidence=confidence,
        severity=severity,
        culprits=first.values.odd,
        summary=f"{subject} differs between ranks: {words.values_by_rank(first.values)}{why}{more}",
        evidence=[
            *(line for one in found[:_SHOWN] for line in _evidence(wording, one)),
            *words.class_evidence(waiting),
        ],
        remedy=wording.remedy.format(name=first.name),
    )


def unexplained(run: Run, what: type[Differs]) -> list[Differs]:
    """The differences of a kind that do not explain a blockage."""
    explained = {one.cause.name for one in run.blockages if isinstance(one.cause, Differs)}
    return [one for one in run.differing if isinstance(one, what) and one.name not in explained]


def _evidence(wording: Wording, found: Differs) -> list[Evidence]:
    return [
        Evidence(
            group[0],
            wording.probe,
            (wording.missing if value is None else wording.evidence).format(name=found.name, value=(value or "")[:60])
            + words.also(group),
        )
        for value, group in found.values.values[:_SHOWN]
    ]
