"""A run after each step: its ranks, its classes of equal ranks, which rank waits for which, and what blocks the run."""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.diagnosis import Label, Operation, Where
from hangdoc.parse import natural
from hangdoc.reasoning.ledger.record import Ledger
from hangdoc.reasoning.ranks import known, torch_names
from hangdoc.reasoning.ranks.holds import Hold
from hangdoc.regex import regex
from hangdoc.snapshot import Connection, Frame, Host, Loop, Process, PythonThread, Unavailable

if TYPE_CHECKING:
    from hangdoc.reasoning.blockages import Blockage
    from hangdoc.reasoning.causes.disagreements import Differs
    from hangdoc.reasoning.causes.launches import LaunchesDiffer
    from hangdoc.reasoning.waits import Waits

Placed = tuple[Host, Process]
"""A process and the host it was seen on."""


BUSY = 0.10
"""Share of one core above which a thread is busy. Waiting threads poll: a rendezvous uses 2-4 %, a monitor up to 5 %."""
_FORM = regex(r"_(into_tensor|tensor|single|coalesced)$")


def form(op: str) -> str:
    """One name for the variants of a collective: a native stack has all_gather where a Python frame has
    all_gather_into_tensor."""
    return _FORM.sub("", op)


class Wait(Struct, frozen=True, gc=False):
    """The operation of a blocked rank, and the ranks that it names."""

    kind: str
    """`collective`, `p2p`, `rendezvous` or `store`: waits that another rank can end."""
    operation: Operation
    members: tuple[int, ...] | None = None
    """Ranks of the group, if the interpreter lists them; None means the default group."""
    sure: bool = True
    """False if the operation was inferred (from an idle backward, for example), not read from a frame."""
    root: int | None = None
    """Of a rooted collective, the root: the rank within its group that sends to all or receives from all."""
    asked: str | None = None
    """Of a call of torch.distributed.rpc, the name of the worker that must answer."""
    answered_by: int | None = None
    """The rank of that worker, if it has accepted the call: it answers when other ranks have made theirs, and is no `peer`."""

    way: tuple[tuple[str, int], ...] = ()
    """Of an unknown operation, the lines of the user's code that lead to it: other lines wait for another operation."""

    @property
    def point(self) -> tuple[str, str | None, tuple[int, ...] | None, str | None, tuple[tuple[str, int], ...]]:
        """Equal for ranks that can meet there."""
        origin = self.operation.origin
        return (
            form(self.operation.op),
            self.operation.group,
            self.members,
            origin if origin in ("ddp-backward", "store") else None,
            self.way if self.operation.op == "wait" else (),
        )

    def having(self, **known: Any) -> "Wait":
        """The same wait, with more known of its operation."""
        return replace(self, operation=replace(self.operation, **known))

    @property
    def of_group(self) -> tuple[str | None, tuple[int, ...] | None]:
        """Equal for calls of one group."""
        return self.operation.group, self.members


class Given(NamedTuple):
    """The tensor that a rank passed to its collective."""

    lines: tuple[int, ...]
    """At which one of torch's calls makes another: broadcast_object_list sends a size first, then what it is of."""
    tensor: str
    """Of the innermost call, as `float32[64, 8]`."""


class LoopView(Struct, frozen=True, gc=False):
    """The loop over the data that a rank is in or has left, with its counter."""

    loop: Loop
    inside: bool
    done: int | None
    """Rounds completed."""
    total: int | None
    of_batches: bool = True
    """Whether a round is a batch; False for an epoch, with a loop over a DataLoader inside it."""
    received: int | None = None
    """Batches that the rank's own iterator has given to the loop, the present one included; None if it does not say."""
    recorded: bool = False
    """Whether the rank's own iterator or dataloader says `total`."""


class State(Struct, frozen=True, gc=False):
    """What was concluded about a rank."""

    label: Label | None
    state: str
    why: str
    """One phrase with the evidence for the state."""
    wait: Wait | None = None
    moving: bool = False
    """Whether anything progressed during the observation: CPU of its own work, stack, counters, bytes, beacon."""
    counters_moved: bool = False
    work: str | None = None
    """What progresses besides counters and stacks, as text: files, other connections, child processes."""
    training_share: float | None = None
    """Share of the observation for which its training thread was on a core; None if it could not be measured."""
    hold: Hold | None = None
    """What blocks it, if it waits for no other rank."""


class Rank(State, frozen=True, gc=False, kw_only=True):
    """One rank. `process` is None where the rank is known to be gone and left nothing."""

    rank: int
    host: str
    process: Process | None
    like: int | None = None
    """The rank of the same host whose evidence was sent for both (`Process.like`)."""
    local_rank: int | None = None
    thread: PythonThread | None = None
    own: tuple[Frame, ...] = ()
    """Frames of the user's own code in that thread, innermost first."""
    program: tuple[Frame, ...] = ()
    """`own` with the frames of the framework that has the training loop, innermost first."""
    where: Where | None = None
    frame: Frame | None = None
    """The frame `where` names."""
    cpu_percent: float | None = None
    silent_seconds: float | None = None
    """Since the last byte on its connections to other ranks."""
    store_silent_seconds: float | None = None
    """Since the last byte on its connections to stores."""
    idle_seconds: float | None = None
    """For how long its training thread had not run when the observation began, at least; None if unknown."""
    loop: LoopView | None = None
    connections: tuple[Connection, ...] = ()
    """To other ranks."""
    given: Given | None = None

    @property
    def pid(self) -> int | None:
        """Its process, if it has one."""
        return self.process.pid if self.process else None

    @property
    def spins(self) -> bool:
        """Whether it spins in the GPU driver, for a collective or for kernels of its own: the host cannot tell which."""
        return self.wait is not None and self.wait.operation.origin == torch_names.GPU_WAIT

    @property
    def uses_rpc(self) -> bool:
        """Whether it uses torch.distributed.rpc."""
        return self.process is not None and any(map(torch_names.is_rpc, known.thread_names(self.process)))

    @property
    def in_rendezvous(self) -> bool:
        """Whether its operation is a rendezvous."""
        return self.wait is not None and self.wait.kind == "rendezvous"

    @property
    def waits(self) -> bool:
        """Whether it is blocked in an operation that another rank has to complete."""
        return self.wait is not None


class Class(Struct, frozen=True, gc=False):
    """Ranks with the same conclusions. The later steps treat them as one."""

    first: Rank
    ranks: tuple[int, ...]
    """Ascending; the first one's number leads."""


class Unlooked(Struct, frozen=True):
    """Why a rank was not observed."""

    why: str
    elsewhere: bool = False
    """It may be alive on a host, or in a process, that was not observed."""


class StoreWait(Struct, frozen=True, kw_only=True, gc=False):
    """A key of a store for which ranks wait, as the memory of the store's server says."""

    key: str
    ranks: tuple[int, ...]
    """Ascending."""
    alike: tuple[str, ...] = ()
    alike_count: int = 0
    """As in `snapshot.AwaitedKey`."""


@dataclass(frozen=True)
class Run:
    """One run, made whole at once: nothing is filled in later."""

    id: str
    """Unique in its look (`hangdoc.reasoning.runs.job_ids`)."""
    hosts: tuple[Host, ...]
    launchers: tuple[Placed, ...]
    launcher: str | None
    backend: str | None
    world_size: int | None
    master: str | None
    ranks: dict[int, Rank]
    unseen: dict[int, Unlooked]
    patience: float
    full_id: str = ""
    """The id with what no other user can claim. Accepted wherever `id` is."""
    name: str | None = None
    """What its launcher and variables say. Runs of several users may have one name."""
    below: dict[tuple[str, int | None], list[Process]] = field(default_factory=dict)
    """The helper processes of each rank, by its host and pid."""
    ledger: Ledger = field(default_factory=Ledger)
    """Which calls each rank has made in each process group."""
    store_waits: tuple[StoreWait, ...] = ()
    """Which ranks wait for which keys of its stores."""
    classes: tuple[Class, ...] = ()
    """All of `ranks`, by their lowest numbers."""
    quiet_seconds: float | None = None
    """How long the waiting or idle ranks have exchanged no data; None if unknown."""
    age_seconds: float | None = None
    """How long they have waited: as long as they exchanged no data, and at most since the last of them made the call that it
    waits in, if that is recorded. None if unknown."""
    meeting_host: Host | None = None
    """The host of the rendezvous endpoint, if it was observed. It may hold no process of the run."""
    differing: "tuple[Differs, ...]" = ()
    """Options, variables and versions that must be the same on all ranks, and are not."""
    launches: "LaunchesDiffer | None" = None
    """Settings of the launches that differ between the nodes."""
    waits: "Waits | None" = None
    """Which rank waits for which."""
    blockages: "tuple[Blockage, ...]" = ()
    """What blocks it, the most severe first."""

    @cached_property
    def host(self) -> dict[str, Host]:
        """Its hosts by their names."""
        return {host.name: host for host in self.hosts}

    @cached_property
    def _by_host(self) -> dict[str, list[Rank]]:
        found: dict[str, list[Rank]] = {}
        for rank in self.ranks.values():
            found.setdefault(rank.host, []).append(rank)
        return found

    def on(self, host: str) -> list[Rank]:
        """The ranks of a host."""
        return self._by_host.get(host, [])

    @property
    def endpoint(self) -> tuple[str, int | None]:
        """Host and port of the rendezvous endpoint; `("", None)` if unknown."""
        host, _, port = (self.master or "").rpartition(":")
        return host, natural(port)

    @cached_property
    def living(self) -> tuple[Rank, ...]:
        """The ranks that are not dead. Each has a process."""
        return tuple(rank for rank in self.ranks.values() if rank.label != "dead")

    @cached_property
    def processes(self) -> dict[int, Process]:
        """The processes of the living ranks."""
        return {rank.rank: rank.process for rank in self.living if rank.process is not None}

    @cached_property
    def whole(self) -> dict[int, Process]:
        """Those that have evidence of their own."""
        return {number: process for number, process in self.processes.items() if self.ranks[number].like is None}

    @cached_property
    def _alike(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for rank in self.living:
            if rank.like is not None:
                found.setdefault(rank.like, []).append(rank.rank)
        return found

    def alike(self, number: int) -> tuple[int, ...]:
        """A rank with evidence of its own, and those that are like it."""
        return (number, *self._alike.get(number, ()))

    @cached_property
    def waiting(self) -> tuple[Class, ...]:
        """Classes that wait for other ranks."""
        return tuple(one for one in self.classes if one.first.waits)

    @cached_property
    def still(self) -> tuple[Class, ...]:
        """Those of them that made no progress."""
        return tuple(one for one in self.waiting if not one.first.moving)

    def concluding(self, **known: Any) -> "Run":
        """The run with more concluded about it. What was computed from its ranks and hosts is kept."""
        found = dataclasses.replace(self, **known)
        computed = (name for name, value in vars(Run).items() if isinstance(value, cached_property))
        found.__dict__.update({name: self.__dict__[name] for name in computed if name in self.__dict__})
        return found

    def blind_hosts(self) -> list[tuple[str, str]]:
        """Hosts whose sockets could not be read, with the reason. How long their ranks have waited is unknown."""
        return [
            (host.name, host.connections.reason) for host in self.hosts if isinstance(host.connections, Unavailable)
        ]

    def helpers(self, rank: Rank) -> list[Process]:
        """The helper processes of a rank."""
        return self.below.get((rank.host, rank.pid), [])


def numbers_of(classes: Iterable[Class]) -> Iterator[int]:
    """The ranks in some classes."""
    for one in classes:
        yield from one.ranks


def ranks_of(classes: Iterable[Class]) -> tuple[int, ...]:
    """The ranks in some classes, ascending."""
    return tuple(sorted(numbers_of(classes)))


def merged(classes: Iterable[Class], key: Callable[[Rank], Hashable]) -> tuple[Class, ...]:
    """One class for all that have the same key, the smallest first."""
    found: dict[Hashable, list[Class]] = {}
    for one in classes:
        found.setdefault(key(one.first), []).append(one)
    whole = (Class(alike[0].first, ranks_of(alike)) for alike in found.values())
    return tuple(sorted(whole, key=lambda one: (len(one.ranks), one.ranks)))
