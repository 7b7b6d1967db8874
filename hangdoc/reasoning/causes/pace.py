"""The pace of a run by the records of its ranks, and the ranks that set it."""

from statistics import median
from typing import NamedTuple

from hangdoc.reasoning.causes.crowding import find_crowd
from hangdoc.reasoning.causes.slow_link import find_slow_link
from hangdoc.reasoning.ledger import lags
from hangdoc.reasoning.ledger.lags import Lag, Pace
from hangdoc.reasoning.ledger.past import past_of, shares_of
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Loops

_LAST, _WAITED = 0.75, 0.25
"""Stragglers are the last in this share of the calls, and for this share of the time the others wait for a later rank."""
_LATE_SECONDS = 0.001
"""A smaller lag is one of the scheduler."""
_AS_LATE = 0.5
"""Ranks with this share of the slowest rank's lag are stragglers too."""

_MOVES = 10
"""So many steps in the window tell a rate. One of a slow run tells none."""
_TELLING_CALLS = 10
_LAST_SECONDS = 5.0
"""Before the last call of all ranks."""


class Stragglers(NamedTuple):
    """A minority of ranks for which the others wait in nearly all calls."""

    slow: tuple[Lag, ...]
    """The latest first."""
    others: tuple[Lag, ...]


def pace_of(run: Run) -> Pace | None:
    """The pace of the largest group of a run in which a rank made a call during the window; None for any other run, or without
    records."""
    moving = [group for group in run.ledger.groups if any(made.moved for made in group.ranks.values())]
    largest = max(moving, key=lambda group: sum(bool(made.numbers) for made in group.ranks.values()), default=None)
    return lags.pace(largest) if largest is not None else None


def stragglers(run: Run, pace: Pace) -> Stragglers | None:
    """The ranks that set the pace; None if they are not fewer than the others, or do not stand out, or if a slow link sets it, or
    the scheduler: where ranks have more threads than there are cores, it makes now one late, now another."""
    latest = pace.slowest
    if latest is None or pace.telling_calls < _TELLING_CALLS:
        return None
    if latest.median_seconds < _LATE_SECONDS or find_slow_link(run) is not None:
        return None
    if (host := run.host.get(run.ranks[latest.rank].host)) is not None and find_crowd(run, host) is not None:
        return None
    slow = [lag for lag in pace.lags if lag.median_seconds >= _AS_LATE * latest.median_seconds]
    others = tuple(lag for lag in pace.lags if lag not in slow)
    if len(slow) > len(others) or sum(lag.last_share for lag in slow) < _LAST:
        return None
    if median(lag.waited_share for lag in others) < _WAITED or _waits_elsewhere(run, latest.rank):
        return None
    return Stragglers(tuple(sorted(slow, key=lambda lag: -lag.median_seconds)), others)


def _waits_elsewhere(run: Run, rank: int) -> bool:
    """Whether a rank that is late in one group waits for later ranks in its other groups: then they wait for each other in turns,
    as the player and the trainers of reinforcement learning do."""
    past = past_of(run.ledger, run.looks_us)
    if past is None or rank not in past.ranks:
        return False
    (share,) = shares_of(past.ranks[rank], (past.last_call - _LAST_SECONDS, past.last_call))
    return share.activity in ("computing", "waiting") and 1 - share.progress >= _WAITED


def waited_share(pace: Pace) -> float:
    """The share of the time that the ranks waited for a later rank: the median of all ranks."""
    return median(lag.waited_share for lag in pace.lags)


def steps_per_second(run: Run) -> float | None:
    """By the counters of the ranks' loops in the window: the median of the ranks; None if they moved too little to tell."""
    rates = [rate for rank in run.living if (rate := _rate(rank)) is not None]
    return median(rates) if rates else None


def _rate(rank: Rank) -> float | None:
    """By the framework's count, or else by the batches of the innermost loop that moved."""
    process = rank.process
    if process is None or not isinstance(process.loops, Loops) or not process.loops.between_seconds:
        return None
    both = [
        *((count.done, count.done_before) for count in process.loops.counts),
        *((loader.done, loader.done_before) for loader in process.loops.loaders),
    ]
    moved = (done - before for done, before in both if done is not None and before is not None and done > before)
    steps = next(moved, 0)
    return steps / process.loops.between_seconds if steps >= _MOVES else None
