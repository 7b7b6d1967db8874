"""A run in which no rank waits for another, but none makes progress."""

from hangdoc.reasoning.evidence.records import backend_names
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtLock,
    AtSharedLock,
    Hold,
    InFile,
    OnNetwork,
    ReadsPipe,
    Serves,
    WaitsForLoader,
)
from hangdoc.reasoning.model.rank import BUSY, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.movement import cores_used

_IN_OWN_WORK = (AtLock, AtFileLock, InFile, WaitsForLoader)
"""What only blocks a rank that has something to do. A worker without a job reads from a queue's pipe, or waits for its lock."""
_TELLING = (*_IN_OWN_WORK, AtSharedLock, ReadsPipe, OnNetwork, Serves)


def is_quiet(run: Run) -> bool:
    """Whether no rank waits for another, each living rank is blocked on its own (by a file, a lock, a worker), and none of its
    threads works. False if a group uses NCCL, because the host cannot see the work of a GPU."""
    hidden = "nccl" in backend_names(run.backend)
    return not run.waiting and not hidden and bool(run.living) and all(map(_is_blocked, run.living))


def is_idle(run: Run) -> bool:
    """Whether a run is quiet, and none of its waits ends by itself."""
    return is_quiet(run) and not any(_ends_by_itself(rank.hold) and rank.cpu_percent is not None for rank in run.living)


def explains(hold: Hold) -> bool:
    """Whether it explains why a rank of a quiet run makes no progress."""
    return isinstance(hold, _TELLING) or (isinstance(hold, Asleep) and hold.polls and hold.ends == "by-itself")


def _is_blocked(rank: Rank) -> bool:
    return (
        rank.label == "blocked"
        and not rank.moving
        and rank.state not in ("waiting-input", "stopped")
        and (rank.process is None or cores_used(rank.process, transport=False) < BUSY)
    )


def _ends_by_itself(hold: Hold | None) -> bool:
    if isinstance(hold, Asleep) and not hold.polls:
        return True
    return hold is not None and hold.ends == "by-itself" and not isinstance(hold, Serves)


def is_seen(run: Run) -> bool:
    """Whether the CPU clocks of all ranks of an idle run were read, so that it is known to be idle. Ranks without a group may
    wait for a GPU or for a job, unless it is known that something blocks their own work."""
    return all(
        rank.cpu_percent is not None
        and (run.backend == "gloo" or rank.uses_rpc or (run.backend is None and isinstance(rank.hold, _IN_OWN_WORK)))
        for rank in run.living
    )
