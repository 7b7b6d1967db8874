"""What all probes share: /proc, the observed processes, and the time limit."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.memory.locate import Image, locate
from hangdoc.observe.memory.memory import Memory
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Launch, RankIdentity, Unavailable

_AT_REST_SECONDS = 1.0

R = TypeVar("R")


class Target(msgspec.Struct):
    """An observed process."""

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
    parent_argv: tuple[str, ...] = ()
    uid: int | None = None
    """Its real user when it was found; None if that could not be read."""
    namespaces: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that it had then, by kind. A process that ends during the look is still of its run."""
    owner: int | None = None
    launcher_gone: bool = False
    whole_tree: bool = True
    unreadable_below: int = 0
    environment: dict[str, str] | Unavailable = msgspec.field(default_factory=dict)
    live_environment: dict[str, str] = msgspec.field(default_factory=dict)
    python: bool = True
    held: bool = False
    """Stopped, frozen or traced: never pause it."""
    last_run: float | None = None
    """When its main thread last ran before the window (monotonic), if it is off the CPU and that is known."""
    in_call_since: float | None = None
    """When it made its last call (monotonic), if torch's record was read and that call has not finished."""

    @property
    def run(self) -> str:
        """A key of its run: equal for all ranks of one."""
        who = self.identity
        return (who.run or who.run_digest if who is not None else None) or f"{self.owner}"

    @property
    def rests_since(self) -> float | None:
        """Since when it waits at least. An observer that pauses a thread lets it run, but the call that it is in is no newer."""
        if self.last_run is None or self.in_call_since is None:
            return self.last_run
        return min(self.last_run, self.in_call_since)

    @property
    def at_rest(self) -> bool:
        """Whether its main thread has not run for a second, so that it can be read without a pause."""
        return self.last_run is not None and time.monotonic() - self.last_run >= _AT_REST_SECONDS


class Observation(msgspec.Struct):
    """One run of the probes."""

    proc: ProcFS
    deadline: Deadline
    window: float
    native: str
    """`auto`, `never` or `always`."""
    targets: dict[int, Target]
    problems: list[str] = msgspec.field(default_factory=list)
    late: list[str] = msgspec.field(default_factory=list)
    """As `problems`: what was not read for lack of time."""
    ras: str = "auto"
    """Whether NCCL's RAS is asked: `auto`, `never` or `always`."""
    of_fleet: bool = False
    """Whether somebody looks at the other hosts of the runs too."""
    ended: float | None = None
    """When the window ended (monotonic): ages count to it, also of what is read later. None before its end."""
    _images: dict[int, Image] = msgspec.field(default_factory=dict)
    _locating: dict[int, threading.Lock] = msgspec.field(default_factory=dict)
    _budgets: dict[int, tuple[Deadline, Budget]] = msgspec.field(default_factory=dict)

    def image(self, pid: int) -> Image:
        """The interpreter of a process, located once. Raises Unreadable."""
        # Probes run in parallel, and locating takes a while. One lock for each process: one that never ends holds up no other.
        with self._locating.setdefault(pid, threading.Lock()):
            if pid not in self._images:
                self._images[pid] = locate(self.proc, pid, self.budget(pid))
            return self._images[pid]

    def memory(self, pid: int) -> Memory:
        """The memory of a process, within its budget. Raises Unreadable."""
        image = self.image(pid)
        return Memory(pid, image.layout, str(self.proc.root), self.budget(pid), image.str_hash)

    def budget(self, pid: int) -> Budget:
        """What reading a process may still take until the deadline. Polls share an Observation, but each has its own deadline."""
        deadline, budget = self._budgets.get(pid, (None, None))
        if budget is None or deadline is not self.deadline:
            budget = Budget()
            self._budgets[pid] = self.deadline, budget
        return budget

    def forget_images(self, new: set[int]) -> None:
        """Keep only the interpreters of targets, and drop those of `new` processes, which have taken over the pids of others."""
        isolation.shared.forget(new)
        isolation.searches.forget(new)
        for table in (self._images, self._locating, self._budgets):
            for pid in [pid for pid in table if pid in new or pid not in self.targets]:
                del table[pid]

    def part(self, pids: Iterable[int]) -> "Observation":
        """This observation restricted to some of its targets."""
        return msgspec.structs.replace(self, targets={pid: self.targets[pid] for pid in pids})

    def ranks(self) -> list[Target]:
        """The ranks among the targets."""
        return [target for target in self.targets.values() if target.role == "rank"]

    def alive(self) -> list[Target]:
        """Targets that still have threads and memory."""
        return [target for target in self.targets.values() if target.state not in "ZX"]

    def read_each(
        self,
        targets: Iterable[Target],
        read: Callable[[Target], R],
        each_seconds: float | None = None,
        *,
        always: bool = False,
    ) -> dict[int, R | Unavailable]:
        """`read` of every target by pid, one after the other, so that each can spoil only its own evidence. One may take
        `each_seconds`; None: as long as a reading should take. `always`: also for users who have taken their share of
        the look."""
        by_pid = self._by_pid(targets)
        return isolation.shared.read_each(
            by_pid, lambda pid: read(by_pid[pid]), self.deadline, each_seconds, always=always
        )

    def _by_pid(self, targets: Iterable[Target]) -> dict[int, Target]:
        isolation.shared.about(self.targets, self.deadline)
        return {target.pid: target for target in targets}

    def read_together(self, targets: Iterable[Target], read: Callable[[Target], R]) -> dict[int, R | Unavailable]:
        """As `read_each`, several at the same time, for readings that end with the look by themselves."""
        by_pid = self._by_pid(targets)
        return isolation.shared.read_together(by_pid, lambda pid: read(by_pid[pid]), self.deadline)

    def search_each(
        self, targets: Iterable[Target], search: Callable[[Target], R], each_seconds: float
    ) -> dict[int, R | Unavailable]:
        """As `read_each`, for what is searched in the rest of the host on behalf of a target: if that takes too long, the target
        is still read."""
        by_pid = self._by_pid(targets)
        return isolation.searches.read_each(by_pid, lambda pid: search(by_pid[pid]), self.deadline, each_seconds)


ProbeResult = tuple[int | None, str, object]
"""(pid, field of snapshot.Process, value), or (None, field of snapshot.Host, value)."""


class Probe(Protocol):
    """One source of evidence.

    `open` reads at the beginning of the window, `close` at its end, and `during` at any time in between. `evidence` returns
    the results. What can't be read of one process is an `Unavailable` for that process: `Observation.read_each` makes it so,
    whatever the reading raises and however long it takes. An exception in a probe becomes a problem in the report and does not
    end the observation.

    An abandoned action still runs beside the next ones. Therefore, they iterate over copies of what it fills.
    """

    name: str

    def open(self, observation: Observation) -> None:
        """Read at the beginning of the window."""

    def during(self, observation: Observation) -> None:
        """Read at any time in the window."""

    def close(self, observation: Observation) -> None:
        """Read at the end of the window."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The results."""
        ...


class PolledProbe(Probe, Protocol):
    """A cheap probe, which keeps its last readings from one poll to the next."""

    def start_next_window(self, observation: Observation) -> None:
        """What was read last is the beginning of the next window."""
