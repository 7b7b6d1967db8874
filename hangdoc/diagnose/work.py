"""Whether a rank that others wait for does something that counts: the line between waiting and hung."""

from hangdoc.diagnose import progress
from hangdoc.diagnose.model import Rank
from hangdoc.phrases import duration
from hangdoc.snapshot import Progress, Stack

_LONG = {
    "evaluating": "it evaluates",
    "checkpointing": "it writes a checkpoint",
    "compiling": "it compiles",
    "loading-data": "its dataloader moves",
}


def at_work(rank: Rank) -> str | None:
    """What a rank does that is known to be legitimate, in words; None where nothing says so.

    Its counters move, it reads, writes or transfers data, its child processes work, or it is in work that is known to
    take long. A loader that goes round and round without a batch
    coming out of it is neither, and neither is a rank that sleeps.
    """
    if (announced := _announced(rank)) is not None:
        return announced
    if rank.process is None or rank.label != "computing" or rank.thread is None:
        return None
    if rank.work is not None:
        return rank.work
    if progress.starves(rank.process, rank.thread) or unclear(rank):
        return None
    if rank.moving and rank.state in _LONG:
        return _LONG[rank.state]
    return "its counters move" if progress.advances(rank.process) else None


def _announced(rank: Rank) -> str | None:
    """A phase that the trainer itself announced with a patience which has not run out, in words."""
    progress = rank.process.progress if rank.process is not None else None
    beacon = progress.beacon if isinstance(progress, Progress) else None
    if beacon is None or beacon.patience_seconds is None or beacon.age_seconds > beacon.patience_seconds:
        return None
    return (
        None
        if rank.waits or rank.state in ("stopped", "waiting-input")
        else (
            f"it is in its phase {beacon.phase}, for {duration(beacon.age_seconds)} of {duration(beacon.patience_seconds)}"
        )
    )


def unclear(rank: Rank) -> bool:
    """Whether nobody can tell if a rank works: its stack could not be read, or it is busy in its loader and one look alone
    does not show whether batches come out of it."""
    if rank.thread is None:
        return True
    one_look = rank.process is not None and not isinstance(rank.process.stack_before, Stack)
    return one_look and rank.state == "loading-data"
