"""What a rank that is not blocked does: the line between waiting and hung."""

from hangdoc.diagnose.model import Rank
from hangdoc.diagnose.ranks.counters import comes_on, turns_for_nothing
from hangdoc.diagnose.ranks.feeding import starves
from hangdoc.diagnose.ranks.holds import Busy, Hold, Starves, Unreadable, Works
from hangdoc.phrases import duration
from hangdoc.snapshot import Progress, Stack

_LONG = {
    "evaluating": "it evaluates",
    "checkpointing": "it writes a checkpoint",
    "compiling": "it compiles",
    "loading-data": "its dataloader moves",
}


def announced(rank: Rank) -> Works | None:
    """A phase that the trainer itself announced with a patience which has not run out."""
    progress = rank.process.progress if rank.process is not None else None
    beacon = progress.beacon if isinstance(progress, Progress) else None
    if beacon is None or beacon.patience_seconds is None or beacon.age_seconds > beacon.patience_seconds:
        return None
    if rank.waits or rank.state in ("stopped", "waiting-input"):
        return None
    age, patience = duration(beacon.age_seconds), duration(beacon.patience_seconds)
    return Works(what=f"it is in its phase {beacon.phase}, for {age} of {patience}")


def hold_of(rank: Rank) -> Hold:
    """What a computing rank is at, for those that wait for it.

    Its counters move, it reads, writes or transfers data, its child processes work, or it is in work that is known to take
    long: then it works. A loader that goes round and round without a batch coming out of it does not.
    """
    process, thread = rank.process, rank.thread
    if (
        process is None
        or thread is None
        or (rank.state == "loading-data" and not isinstance(process.stack_before, Stack))
    ):
        return (
            Unreadable()
        )  # also one that is busy in its loader: a single look does not show whether batches come out of it
    counted = comes_on(process, thread)
    if turns_for_nothing(process, thread):
        return Starves() if starves(process, thread) else Busy()
    if rank.work is not None:
        return Works(what=rank.work, certain=counted)
    if starves(process, thread):
        return Works(what=_LONG["loading-data"], certain=True) if counted else Starves()
    if rank.moving and rank.state in _LONG:
        return Works(what=_LONG[rank.state], certain=counted)
    return Works(what="its counters move", certain=True) if counted else Busy(counts=rank.counters_moved)
