"""What a rule writes about a blockage or a run, and the finding that it becomes. A rule imports from here what all rules need."""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.diagnosis import Evidence, Finding, FirstDifference, Severity
from hangdoc.phrases import duration, minutes
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Hold
from hangdoc.reasoning.model.kinds import Cycle, Subset
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.text import call_words, words
from hangdoc.reasoning.text.next_steps import Command, WithRemedy, look_again

__all__ = [
    "WRITERS",
    "Blockage",
    "Draft",
    "Evidence",
    "Run",
    "WithRemedy",
    "Writer",
    "about",
    "finding",
    "reported_causes",
]

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
_RUN_AGAIN = "This may still end by itself. Run hangdoc again in a few minutes, and compare."
_AFTER_SLEEP = "This sleep ends in {left}. Run hangdoc again in {when}, and compare."
_LOOK_SECONDS = 10.0
"""A look takes some seconds, and a person some to start it."""
_AS_GOOD_AS_NONE = 365 * 86_400.0
"""Seconds. Who wants no timeout gives the longest that a library takes."""
_NO_AGE = "The age of this wait is not known. Run hangdoc again in a minute: if nothing has changed, the run hangs."
Subject = TypeVar("Subject", bound=Hold | Cause)
Explanation = TypeVar("Explanation", bound=Cause)


class Draft(Struct, frozen=True, kw_only=True):
    """A finding without its rule. What is None is that of the blockage, and the command shows the stack of its first culprit.
    Without a blockage, it is no rank, no command, and the severity `warning`."""

    confidence: float
    summary: str
    evidence: Iterable[Evidence]
    remedy: str
    """The usual one, where no evidence shows another (`WithRemedy`)."""
    may_end: bool = False
    """Whether the remedy can wait while the blockage is too young for a hang: then a second look shows more."""
    commands: Iterable[Command] | None = None
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


def reported_causes(run: Run, kind: type[Explanation]) -> list[Explanation]:
    """The causes of a kind that the findings about blockages report, so that a `check` need not."""
    return [blockage.cause for blockage in run.blockages if isinstance(blockage.cause, kind)]


def finding(code: str, name: str, draft: Draft, run: Run, blockage: Blockage | None = None) -> Finding:
    """The finding of a draft: its ranks in order, no rank both culprit and victim, and a confidence of at most 0.99."""
    draft = _with_shown_remedy(draft)
    if blockage is not None:
        draft = _completed(draft, run, blockage)
    culprits = set(draft.culprits or ())
    inferred = blockage is not None and isinstance(blockage.kind, Cycle) and not blockage.kind.sure
    involved = sorted({*culprits, *(draft.victims or ())}) if inferred else []
    unread = (words.describe_unread_call(run.ranks[rank]) for rank in involved if rank in run.ranks)
    return Finding(
        code=code,
        name=name,
        severity=draft.severity or "warning",
        confidence=round(min(0.99, draft.confidence), 2),
        culprits=tuple(sorted(culprits)),
        victims=tuple(sorted(set(draft.victims or ()) - culprits)),
        summary=draft.summary,
        evidence=tuple(draft.evidence),
        remedy=draft.remedy,
        commands=tuple(command.line for command in draft.commands or ()),
        first_difference=draft.first_difference,
        unread=next(filter(None, unread), None),
        cause=blockage.cause.NAME if blockage is not None and blockage.cause is not None else None,
    )


def _with_shown_remedy(draft: Draft) -> Draft:
    """A draft whose remedy is that of its evidence, and whose evidence is plain."""
    lines = tuple(draft.evidence)
    remedy = next((line.remedy for line in lines if isinstance(line, WithRemedy)), draft.remedy)
    return replace(draft, evidence=[Evidence(line.rank, line.probe, line.text) for line in lines], remedy=remedy)


def _completed(draft: Draft, run: Run, blockage: Blockage) -> Draft:
    """A draft with what every finding about a blockage has. What the record of calls shows is its first evidence, and what the
    cards do its last. If the record casts doubt on the lines at which ranks wait, the confidence is low."""
    ranks = {*blockage.victims, *blockage.blamed}
    by_lines = isinstance(blockage.kind, Cycle) and blockage.cause is None
    doubt = call_words.doubt(run, ranks) if by_lines else None
    earlier = call_words.describe_earlier_difference(run, ranks) if by_lines else None
    group = blockage.kind.group if isinstance(blockage.kind, Subset) else None
    about_calls = (earlier, *call_words.evidence(run, ranks, group), doubt)
    calls = [line for line in about_calls if line is not None]
    culprits = blockage.blamed if draft.culprits is None else draft.culprits
    return replace(
        draft,
        confidence=draft.confidence if doubt is None else min(_DOUBTED, draft.confidence),
        severity=draft.severity or blockage.severity,
        culprits=culprits,
        victims=blockage.victims if draft.victims is None else draft.victims,
        summary=draft.summary + _still_young(blockage),
        evidence=(*calls, *draft.evidence, *call_words.card_evidence(run, ranks)),
        remedy=_remedy(blockage, draft),
        commands=_look_at(run, blockage, culprits) if draft.commands is None else draft.commands,
    )


def _look_at(run: Run, blockage: Blockage, culprits: Iterable[int]) -> Iterable[Command]:
    """The command that shows the stack of the first culprit, or else of the first rank that others wait for."""
    blamed = [run.ranks[number] for number in culprits if number in run.ranks]
    return next(map(look_again, blamed or [awaited.first for awaited in blockage.awaited]), ())


def _remedy(blockage: Blockage, draft: Draft) -> str:
    """What to do; where time will show whether a wait ends, when to look again."""
    if blockage.severity != "info":
        return draft.remedy
    if blockage.after_the_fact:
        return _UNDATED if blockage.age_seconds is None else _TOO_EARLY
    if not draft.may_end:
        return draft.remedy
    if blockage.ends == "by-itself":
        end = blockage.kind.seconds_left
        return _RUN_AGAIN if end is None else _AFTER_SLEEP.format(left=duration(end), when=minutes(end + _LOOK_SECONDS))
    if blockage.age_seconds is None:
        return _NO_AGE
    left = (blockage.hung_from_seconds or 0.0) - blockage.age_seconds
    if not 0 < left < _SOON_SECONDS:
        return _RUN_AGAIN
    when = minutes(math.ceil(left)).replace(".0 s", " s")
    return f"Run hangdoc again {when} after this look, or later: if nothing has changed by then, the run hangs."


def _still_young(blockage: Blockage) -> str:
    """Of a wait that is only too young for a hang: its age, and from when on it is one."""
    if blockage.hung_from_seconds is None or blockage.age_seconds is None:
        return ""
    lasted, limit = duration(blockage.age_seconds), minutes(blockage.hung_from_seconds)
    if lasted == limit:  # rounded up to it
        lasted = f"{int(blockage.age_seconds * 10) / 10} s"
    if blockage.given_seconds is not None:
        no_end = blockage.given_seconds > _AS_GOOD_AS_NONE
        given = "without a timeout" if no_end else f"with a timeout of {duration(blockage.given_seconds)}"
        limit += f" (not earlier, because the ranks wait {given})"
    if blockage.after_the_fact:
        return f"; when the dumps were written, this had lasted {lasted}, and it counts as HUNG from {limit} on"
    if blockage.renewed:
        return f"; the last activity was {lasted} ago, and this counts as HUNG after {limit} without any"
    return f"; this has lasted {lasted} and counts as HUNG from {limit} on"
