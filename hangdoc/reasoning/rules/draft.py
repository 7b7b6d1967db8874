"""What a rule writes about a blockage or a run, and the finding that it becomes."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct

from hangdoc.diagnosis import Evidence, Finding, FirstDifference, Severity
from hangdoc.phrases import duration, minutes
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Hold
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.text.next_steps import Command
from hangdoc.reasoning.text.words import RUN_AGAIN

_DOUBTED = 0.6
_SOON_SECONDS = 300.0
_TOO_EARLY = (
    "The dumps were written before the timeout of this call, so it may have finished later. Read the dumps that torch writes at "
    "the timeout."
)
_UNDATED = (
    "The files do not show when torch wrote them. Copy them with their times (`cp -p`, `rsync -t`): then hangdoc knows whether "
    "the timeout of this call had passed."
)
Subject = TypeVar("Subject", bound=Hold | Cause)


class Draft(Struct, frozen=True, kw_only=True):
    """A finding without its rule. What is None is that of the blockage; without one, no rank, and the severity `warning`."""

    confidence: float
    summary: str
    evidence: Iterable[Evidence]
    remedy: str
    commands: Iterable[Command] = ()
    severity: Severity | None = None
    culprits: Iterable[int] | None = None
    victims: Iterable[int] | None = None
    first_difference: FirstDifference | None = None


Writer = Callable[[Run, Blockage, Subject], Draft]
WRITERS: dict[type, Writer[Any]] = {}
"""Which function writes about which kind or cause."""


def about(*subjects: type[Subject]) -> Callable[[Writer[Subject]], Writer[Subject]]:
    """Make a function the only one that writes about some kinds or causes of blockages."""

    def register(write: Writer[Subject]) -> Writer[Subject]:
        for subject in subjects:
            if WRITERS.setdefault(subject, write) is not write:
                raise ValueError(f"two rules write about {subject.__name__}")
        return write

    return register


def finding(
    code: str,
    name: str,
    draft: Draft,
    blockage: Blockage | None = None,
    calls: Iterable[Evidence] = (),
    doubt: Evidence | None = None,
) -> Finding:
    """The finding of a draft: its ranks in order, no rank both culprit and victim, and a confidence of at most 0.99. What the
    record of calls shows (`calls`) is its first evidence. With a `doubt` about it, the confidence is low."""
    severity: Severity = blockage.severity if blockage is not None else "warning"
    blamed, waiting = (blockage.blamed, blockage.victims) if blockage is not None else ((), ())
    culprits = set(blamed if draft.culprits is None else draft.culprits)
    return Finding(
        code=code,
        name=name,
        severity=draft.severity or severity,
        confidence=round(min(0.99 if doubt is None else _DOUBTED, draft.confidence), 2),
        culprits=tuple(sorted(culprits)),
        victims=tuple(sorted(set(waiting if draft.victims is None else draft.victims) - culprits)),
        summary=draft.summary + (_still_young(blockage) if blockage is not None else ""),
        evidence=(*calls, *([doubt] if doubt is not None else ()), *draft.evidence),
        remedy=(_unfinished_remedy(blockage) or _next_look(blockage, draft) if blockage is not None else None)
        or draft.remedy,
        commands=tuple(one.line for one in draft.commands),
        first_difference=draft.first_difference,
        cause=blockage.cause.NAME if blockage is not None and blockage.cause is not None else None,
    )


def _unfinished_remedy(blockage: Blockage) -> str | None:
    """What to do if dumps leave it open whether a call finished later."""
    if not blockage.after_the_fact or blockage.severity != "info":
        return None
    return _UNDATED if blockage.age_seconds is None else _TOO_EARLY


def _next_look(blockage: Blockage, draft: Draft) -> str | None:
    """When to look again, if time will show whether a wait ends."""
    if draft.remedy != RUN_AGAIN or blockage.ends == "by-itself":
        return None
    if blockage.age_seconds is None:
        return (
            "The age of this wait is not known. Run hangdoc again in a minute: if nothing has changed, the run hangs."
        )
    limit = blockage.hung_from_seconds
    left = limit - blockage.age_seconds if limit is not None else None
    if left is None or not 0 < left < _SOON_SECONDS:
        return None
    return f"Run hangdoc again in {minutes(left)}: if nothing has changed by then, the run hangs."


def _still_young(blockage: Blockage) -> str:
    """Of a wait that is only too young for a hang: its age, and from when on it is one."""
    if blockage.hung_from_seconds is None or blockage.age_seconds is None:
        return ""
    lasted, limit = duration(blockage.age_seconds), minutes(blockage.hung_from_seconds)
    if blockage.after_the_fact:
        return f"; when the dumps were written, this had lasted {lasted}, and it counts as HUNG from {limit} on"
    return f"; this has lasted {lasted} and counts as HUNG from {limit} on"
