"""What the rules see: a rank with everything that was concluded about it, and a job with who waits for whom."""

import re
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from hangdoc.diagnose import backends, facts
from hangdoc.diagnosis import Label, Operation, Where
from hangdoc.snapshot import Connection, Environment, Frame, Host, Interpreter, Loop, Process, PythonThread, Unavailable

Placed = tuple[Host, Process]
"""A process and the host it was seen on."""


BUSY = 0.10
"""Share of one core above which a thread is at work. Idle waits poll: rendezvous takes 2-4 %, a monitor up to 5 %."""
_FORM = re.compile(r"_(into_tensor|tensor|single|coalesced)$")


def form(op: str) -> str:
    """One name for the forms of a collective: a native stack says all_gather where a Python frame says
    all_gather_into_tensor."""
    return _FORM.sub("", op)


class Wait(Struct, frozen=True):
    """What a blocked rank is in, and whom it names."""

    kind: str
    """`collective`, `p2p`, `rendezvous` or `store`: waits that another rank can end."""
    operation: Operation
    members: tuple[int, ...] | None = None
    """Ranks of the group where the interpreter told; None means the default group."""
    sure: bool = True
    """False where the operation is concluded from circumstances (an idle backward), not from a frame."""
    root: int | None = None
    """Of a rooted collective, the rank (of its group) that it was told sends to all or receives from all."""

    @property
    def point(self) -> tuple[str, str | None, tuple[int, ...] | None, str | None]:
        """Equal for ranks that can meet there."""
        origin = self.operation.origin
        return (
            form(self.operation.op),
            self.operation.group,
            self.members,
            origin if origin in ("ddp-backward", "store") else None,
        )


class LoopView(Struct, frozen=True):
    """The loop over the data that a rank is in or has left, with its counter."""

    loop: Loop
    file: str
    function: str
    inside: bool
    counter: str | None
    value: int | None
    done: int | None
    """Rounds completed."""
    total: int | None


class Rank(Struct, frozen=True):
    """One rank. `process` is None where the rank is known to be gone and left nothing."""

    rank: int
    host: str
    process: Process | None
    local_rank: int | None
    label: Label | None
    state: str
    wait: Wait | None = None
    thread: PythonThread | None = None
    where: Where | None = None
    frame: Frame | None = None
    """The frame `where` names."""
    moving: bool = False
    """Whether any of its clocks moved during the window: CPU of its own work, stack, counters, bytes, beacon."""
    counters_moved: bool = False
    work: str | None = None
    """What goes on besides counters and stacks, in words."""
    cpu_percent: float | None = None
    silent_seconds: float | None = None
    loop: LoopView | None = None
    training_share: float | None = None
    """Share of the window that its training thread was on a core; None where it could not be measured."""
    why: str = ""
    """One phrase that says what the state rests on."""
    connections: tuple[Connection, ...] = ()
    """To other ranks."""

    @property
    def pid(self) -> int | None:
        """Its process, if it has one."""
        return self.process.pid if self.process else None

    @property
    def spins(self) -> bool:
        """Whether it spins in the GPU's driver: for a collective or for kernels of its own, which the host can't tell."""
        return self.wait is not None and self.wait.operation.origin == facts.GPU_WAIT

    @property
    def waits(self) -> bool:
        """Whether it stands still in something that another rank would have to end."""
        return self.wait is not None and self.label == "blocked"


@dataclass
class Run:
    """One job, before its findings."""

    id: str
    hosts: tuple[Host, ...]
    launchers: tuple[tuple[Host, Process], ...]
    launcher: str | None
    backend: str | None
    world_size: int | None
    master: str | None
    ranks: dict[int, Rank]
    unseen: dict[int, str]
    patience: float
    meeting_host: Host | None = None
    """The host that has the address at which the run meets, where it was looked at; none of the run's may be there."""
    waits_for: dict[int, frozenset[int]] = field(default_factory=dict)
    """For each waiting rank, the ranks it waits for (all of the group that are not at the same point)."""
    causes: frozenset[int] = frozenset()
    """Ranks at the end of the chains of waiting: they wait for no rank themselves."""
    age_seconds: float | None = None
    """How long the waiting ranks have been silent."""

    @cached_property
    def _by_host(self) -> dict[str, list[Rank]]:
        found: dict[str, list[Rank]] = {}
        for rank in self.ranks.values():
            found.setdefault(rank.host, []).append(rank)
        return found

    def on(self, host: str) -> list[Rank]:
        """The ranks of a host."""
        return self._by_host.get(host, [])

    @cached_property
    def _waiting(self) -> tuple[Rank, ...]:
        return tuple(self.ranks[number] for number in sorted(self.ranks) if self.ranks[number].waits)

    def waiting(self) -> list[Rank]:
        """Ranks that wait for others, by number."""
        return list(self._waiting)

    @cached_property
    def idle(self) -> bool:
        """Whether no rank is in an operation and yet none does anything, as far as it was seen: each stands still in something
        of its own (a file, a lock, a worker), and no thread of it works. Not where a group uses NCCL: a GPU's work is not
        seen from the host."""
        return (
            "nccl" not in backends.parts(self.backend)
            and bool(self.ranks)
            and all(
                rank.label == "blocked"
                and rank.wait is None
                and not rank.moving
                and rank.state not in ("waiting-input", "stopped")
                and (rank.state != "sleeping" or rank.cpu_percent is None)  # by its clocks; a sleep ends by itself
                and (rank.cpu_percent or 0.0) < 100 * BUSY
                for rank in self.ranks.values()
            )
        )

    @cached_property
    def standstill(self) -> bool:
        """Whether the ranks are idle, and their clocks were read."""
        return self.idle and self.backend == "gloo" and all(r.cpu_percent is not None for r in self.ranks.values())

    def still(self) -> list[Rank]:
        """The ranks whose silence says how long the run has stood still: those that wait, or all in a standstill."""
        return list(self.ranks.values()) if self.standstill else self.waiting()

    def awaited(self) -> list[Rank]:
        """Ranks at the end of the chains of waiting that are there and wait for no other rank, by number."""
        found = (self.ranks.get(number) for number in sorted(self.causes))
        return [rank for rank in found if rank is not None and not rank.waits]

    def blind_hosts(self) -> list[tuple[str, str]]:
        """Hosts whose sockets could not be read, with the reason: how long their ranks wait is unknown."""
        return [
            (host.name, host.connections.reason) for host in self.hosts if isinstance(host.connections, Unavailable)
        ]

    def helpers(self, rank: Rank) -> list[Process]:
        """The helper processes of a rank."""
        return [
            process
            for host in self.hosts
            if host.name == rank.host
            for process in host.processes
            if process.role == "helper" and process.owner == rank.pid
        ]

    def older_than_patience(self) -> bool:
        """Whether the wait has lasted longer than the user's patience; an unknown age has not."""
        return self.age_seconds is not None and self.age_seconds >= self.patience


def environment_of(process: Process) -> dict[str, str]:
    """The variables a rank runs with: those it started with, overlaid by what it set itself."""
    started = process.environment.variables if isinstance(process.environment, Environment) else {}
    inside = process.interpreter.environment if isinstance(process.interpreter, Interpreter) else {}
    return {**started, **inside}
