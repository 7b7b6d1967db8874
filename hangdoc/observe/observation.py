"""What all probes share: the machine, the processes of interest, and the bound on time."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec

from hangdoc.observe.deadline import Deadline
from hangdoc.observe.locate import Image, locate
from hangdoc.observe.procfs import ProcFS
from hangdoc.snapshot import Launch, RankIdentity, Unavailable

T = TypeVar("T")
R = TypeVar("R")


class Target(msgspec.Struct):
    """A process of interest, while it is being looked at."""

    pid: int
    ppid: int
    role: str
    """`rank`, `launcher` or `helper`."""
    name: str
    argv: tuple[str, ...]
    state: str
    start_ticks: int
    identity: RankIdentity | None = None
    launch: Launch | None = None
    owner: int | None = None
    launcher_gone: bool = False
    whole_tree: bool = True
    unreadable_below: int = 0
    environment: dict[str, str] | Unavailable = msgspec.field(default_factory=dict)
    inner_environment: dict[str, str] = msgspec.field(default_factory=dict)
    python: bool = True
    held: bool = False
    """Stopped, frozen or traced: never pause it."""


class Observation(msgspec.Struct):
    """One observation under way."""

    proc: ProcFS
    deadline: Deadline
    window: float
    native: str
    """`auto`, `never` or `always`."""
    targets: dict[int, Target]
    pool: ThreadPoolExecutor
    problems: list[str] = msgspec.field(default_factory=list)
    _images: dict[int, Image] = msgspec.field(default_factory=dict)
    _locating: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def image(self, pid: int) -> Image:
        """Where a process keeps its Python, looked up once; raises Unreadable."""
        with self._locating:  # probes ask side by side, and it takes a while
            if pid not in self._images:
                self._images[pid] = locate(self.proc, pid)
            return self._images[pid]

    def forget_images(self, new: set[int]) -> None:
        """Keep those of the targets, without processes that are new under their pids."""
        for pid in [pid for pid in self._images if pid in new or pid not in self.targets]:
            del self._images[pid]

    def part(self, pids: Iterable[int]) -> "Observation":
        """The same with some of the targets alone."""
        return msgspec.structs.replace(self, targets={pid: self.targets[pid] for pid in pids})

    def ranks(self) -> list[Target]:
        """The ranks among the targets, by pid."""
        return [target for target in self.targets.values() if target.role == "rank"]

    def alive(self) -> list[Target]:
        """Targets that still have threads and memory."""
        return [target for target in self.targets.values() if target.state not in "ZX"]

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """`function` of every item, side by side, in the items' order."""
        return list(self.pool.map(function, items))


ProbeResult = tuple[int | None, str, object]
"""(pid, field of snapshot.Process, value), or with None for the pid a field of snapshot.Host."""


class Probe(Protocol):
    """One source of evidence.

    `open` is the look at the window's beginning, `during` whatever may happen at any time in it, `close` the look at its
    end; `evidence` hands over. What one process refuses is an `Unavailable` for that process. A probe that raises all
    the same becomes a problem in the report, not a dead run.
    """

    name: str

    def open(self, observation: Observation) -> None:
        """First look."""

    def during(self, observation: Observation) -> None:
        """In between."""

    def close(self, observation: Observation) -> None:
        """Second look."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """What was seen."""
        ...
