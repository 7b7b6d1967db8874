"""What two peers answer: a naive rule that many people use, and plain `py-spy dump`.

Both get the same snapshot as hangdoc.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hangbench.case import Case
from hangdoc.snapshot import Clocks, Process, Snapshot, Stack

_IDLE = 0.05


@dataclass(frozen=True)
class PeerAnswer:
    """The answer of a peer."""

    verdict: str | None
    labels: dict[int, str]
    lines: int = 0
    """Lines of stacks that a person must read and compare."""


def naive(snapshot: Snapshot, world: int) -> PeerAnswer:
    """A missing process is dead, one below 5 % CPU is blocked, others are computing. Without a computing rank the run is hung."""
    labels = dict.fromkeys(range(world), "dead")
    for process in _ranks(snapshot):
        if process.identity is not None and process.state not in "ZX":
            labels[process.identity.rank] = "blocked" if _share(process) < _IDLE else "computing"
    return PeerAnswer("healthy" if "computing" in labels.values() else "hung", labels)


def py_spy(snapshot: Snapshot) -> PeerAnswer:
    """One dump per rank. It marks threads as idle or active, and has no verdict about the run."""
    labels, lines = {}, 0
    for process in _ranks(snapshot):
        if isinstance(process.stack, Stack):
            lines += 3 + sum(1 + len(thread.frames) for thread in process.stack.threads)
            main = next((t for t in process.stack.threads if t.name == "MainThread"), None)
            if process.identity is not None and main is not None:
                labels[process.identity.rank] = "computing" if main.active else "blocked"
    return PeerAnswer(None, labels, lines)


def _ranks(snapshot: Snapshot) -> Iterable[Process]:
    return (process for host in snapshot.hosts for process in host.processes if process.role == "rank")


def _share(process: Process) -> float:
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0:
        return 0.0
    return sum(t.cpu_ns for t in process.clocks.threads) / 1e9 / process.clocks.window_seconds


def labels_right(case: Case, answer: PeerAnswer) -> tuple[int, int]:
    """(right, all), over the ranks for which only one label is right."""
    wanted = [(rank, label) for rank, label in enumerate(case.labels) if label]
    return sum(answer.labels.get(rank) == label for rank, label in wanted), len(wanted)
