"""How many batches a rank is behind the first one of its run."""

from collections.abc import Callable, Iterable

from hangdoc.diagnosis import RankView
from hangdoc.render import words
from hangdoc_tui.rates import Rate

FindRate = Callable[[RankView], Rate | None]
"""The batches per second of a rank; None if they are not known."""
_LEAST = 2
"""Batches. In a run that makes progress, some ranks are always one behind the others."""
_READING_SECONDS = {"loader": 0.1}
"""By the source of a number: how much earlier than its age says it may have been read."""
_POLL_SECONDS = 1.0
"""The same for the others, whose age is that of a poll."""


def find_first(views: Iterable[RankView]) -> RankView | None:
    """The rank that has done the most batches, of those that were counted in this poll."""
    counted = [view for view in views if view.batches_done is not None and words.batches_age(view) is None]
    numbered = all(view.batches_pass_number is not None for view in counted)
    return max(
        counted, key=lambda view: (view.batches_pass_number if numbered else 0, view.batches_done or 0), default=None
    )


def count_behind(view: RankView, first: RankView, find_rate: FindRate) -> int | None:
    """By how many batches a rank is behind the first one, both counted in this poll. None if their numbers can't be compared, and
    for a difference that may be no more than that of the moments at which they were read."""
    behind, seconds = _subtract(first, view), _find_seconds_between(view, first)
    if behind is None or behind < _LEAST or seconds is None:
        return None
    rates = [find_rate(each) for each in (view, first) if not words.stands_still(each)]
    known = [rate.per_second for rate in rates if rate is not None]
    fits = len(known) == len(rates) and behind > 1 + max(known, default=0.0) * seconds
    return behind if fits else None


def _subtract(first: RankView, view: RankView) -> int | None:
    """The batches from one rank to another, across passes of equal length. None if they may be in different passes."""
    done = (first.batches_done or 0) - (view.batches_done or 0)
    passes = (first.batches_pass_number, view.batches_pass_number)
    if passes[0] is not None and passes[0] == passes[1]:
        return done
    total = view.batches_total
    if total is None or first.batches_total != total:
        return None
    if passes[0] is not None and passes[1] is not None:
        return (passes[0] - passes[1]) * total + done
    # More than half of the batches behind may as well be some ahead, in the next pass.
    return done if done <= total // 2 else None


def _find_seconds_between(view: RankView, first: RankView) -> float | None:
    """The most time between the readings of two ranks; None for hosts whose polls are of different moments."""
    if words.stands_still(view) and words.stands_still(first):
        return 0.0
    if view.host != first.host:
        return None
    ages = [each.batches_seconds_ago or 0.0 for each in (view, first)]
    slack = max(_READING_SECONDS.get(each.batches_source or "", _POLL_SECONDS) for each in (view, first))
    return abs(ages[0] - ages[1]) + slack
