"""What a rank that is not blocked is doing. This decides between waiting and hung."""

from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.holds import Busy, Hold, Starves, Unreadable, Works
from hangdoc.reasoning.model.rank import BUSY, Rank
from hangdoc.reasoning.ranks import movement
from hangdoc.reasoning.ranks.counters import comes_on, goes_round
from hangdoc.reasoning.ranks.feeding import fetching, starves
from hangdoc.snapshot import Process, Progress, Stack

_BY_TORCH = ("compiling", "checkpointing")
_LONG = {
    "evaluating": "it evaluates",
    "checkpointing": "it writes a checkpoint",
    "compiling": "it compiles",
    "loading-data": "it loads data",
}


def announced(rank: Rank) -> Works | None:
    """A phase that the trainer announced, with a patience that has not run out."""
    beacon = known.beacon(rank.process)
    if beacon is None or beacon.patience_seconds is None or beacon.age_seconds > beacon.patience_seconds:
        return None
    if rank.waits or rank.state in ("stopped", "waiting-input"):
        return None
    age, patience = duration(beacon.age_seconds), duration(beacon.patience_seconds)
    return Works(what=f"it announced phase {beacon.phase} {age} ago, with a patience of {patience}")


def hold_of(rank: Rank) -> Hold:
    """What a computing rank is doing, for the ranks that wait for it.

    A rank that uses CPU or transfers bytes is working until the opposite is shown: that it runs a loop that has no end, counts
    nothing, and yields nothing to the loop around it.
    """
    process, thread = rank.process, rank.thread
    if process is not None and thread is None and (own := movement.own_counts(process)) is not None:
        return Works(what=own, certain=True)
    if process is None or thread is None or _is_unclear(rank, process):
        return Unreadable()
    if process.deep_seconds_ago:  # never more than that: an old stack is no evidence against a rank
        return Works(what=rank.why)
    counted = comes_on(process, thread)
    what = rank.work or ("its counters changed" if counted else _LONG.get(rank.state))
    beside = rank.state in _BY_TORCH or (rank.work is not None and not fetching(thread))
    if not beside and goes_round(process, thread):
        return Starves() if starves(process, thread) else Busy()
    if what is not None:
        return Works(what=what, certain=counted)
    seen = isinstance(process.progress, Progress) and all(frame.source for frame in rank.own)
    if rank.counters_moved or not seen:
        return Busy(ends="by-itself" if rank.counters_moved else "unknown")
    share = rank.training_share or 0.0
    return Works(what=f"it is working ({share:.0%} of a core)") if share >= BUSY else Busy()


def _is_unclear(rank: Rank, process: Process) -> bool:
    """Whether a rank is in its loader, and two stacks and its counters are missing that would show whether batches arrive."""
    seen = isinstance(process.stack_before, Stack) and isinstance(process.progress, Progress)
    return rank.state == "loading-data" and not seen
