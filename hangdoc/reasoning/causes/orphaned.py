"""Ranks that wait for what their launcher would have sent them, and the launcher is gone."""

from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import ReadsPipe
from hangdoc.reasoning.model.rank import Class
from hangdoc.reasoning.model.run import Run


class Orphaned(Cause, frozen=True, kw_only=True):
    """The launcher of a run is gone, and a rank reads from a pipe that no process writes to any more."""

    NAME = "orphaned"
    ranks: tuple[int, ...]
    """All orphans of the run."""


def find(run: Run, kind: ReadsPipe, awaited: tuple[Class, ...]) -> Orphaned | None:
    """The cause of a read from a pipe without a writer; None if the launcher of a rank that reads is alive."""
    if kind.ends != "never" or kind.fifo is not None or not all(_is_orphan(run, one) for one in awaited):
        return None
    return Orphaned(ranks=tuple(sorted(rank for rank, process in run.processes.items() if process.launcher_gone)))


def _is_orphan(run: Run, one: Class) -> bool:
    processes = run.processes
    return all(rank in processes and processes[rank].launcher_gone for rank in one.ranks)
