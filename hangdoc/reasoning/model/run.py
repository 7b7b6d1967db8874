"""A run after each step: its ranks, which rank waits for which, and what blocks it."""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

from msgspec import Struct, field, structs

from hangdoc.parse import natural
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Differs, LaunchesDiffer
from hangdoc.reasoning.model.ledger import Ledger
from hangdoc.reasoning.model.rank import Class, Rank, numbers_of
from hangdoc.reasoning.model.waits import Waits
from hangdoc.snapshot import Host, Process, Unavailable

T = TypeVar("T")
Placed = tuple[Host, Process]
"""A process and the host it was seen on."""


class Unlooked(Struct, frozen=True):
    """Why a rank was not observed."""

    why: str
    elsewhere: bool = False
    """It may be alive on a host, or in a process, that was not observed."""
    unreadable: bool = False
    """It may be a process that is alive and that hangdoc may not read."""


class StoreWait(Struct, frozen=True, kw_only=True, gc=False):
    """A key of a store for which ranks wait, as the memory of the store's server says."""

    key: str
    ranks: tuple[int, ...]
    """Ascending."""
    alike: tuple[str, ...] = ()
    alike_count: int = 0
    """As in `snapshot.AwaitedKey`."""


class Run(Struct, frozen=True, dict=True):
    """One run, made whole at once: nothing is filled in later."""

    id: str
    """Unique in its look (`hangdoc.reasoning.runs.processes`)."""
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
    served: frozenset[int] = frozenset()
    """The ranks that take requests from outside, or whose parent does and may give them to the rank."""
    request_seconds: dict[int, float] = field(default_factory=dict)
    """By rank: how long it has had a request from outside that it has not answered. Such a rank is not idle."""
    duplicates: tuple[Placed, ...] = ()
    """Processes that were started with the ranks, and got the number of one of them again."""
    quiet_seconds: float | None = None
    """How long the waiting or idle ranks have exchanged no data; None if unknown."""
    age_seconds: float | None = None
    """How long they have waited: as long as they exchanged no data, and at most since the last of them made the call that it
    waits in, if that is recorded. None if unknown."""
    meeting_host: Host | None = None
    """The host of the rendezvous endpoint, if it was observed. It may hold no process of the run."""
    differing: tuple[Differs, ...] = ()
    """Options, variables and versions that must be the same on all ranks, and are not."""
    launches: LaunchesDiffer | None = None
    """Settings of the launches that differ between the nodes."""
    waits: Waits | None = None
    """Which rank waits for which."""
    blockages: tuple[Blockage, ...] = ()
    """What blocks it, the most severe first."""

    @cached_property
    def host(self) -> dict[str, Host]:
        """Its hosts by their names."""
        return {host.name: host for host in self.hosts}

    @cached_property
    def looks_us(self) -> dict[str, int]:
        """When the look at each host ended, in microseconds by the host's clock. Without hosts that did not say."""
        return {host.name: host.wall_us for host in self.hosts if host.wall_us is not None}

    @cached_property
    def _by_host(self) -> dict[str, list[Rank]]:
        by_host: dict[str, list[Rank]] = {}
        for rank in self.ranks.values():
            by_host.setdefault(rank.host, []).append(rank)
        return by_host

    def on(self, host: str) -> list[Rank]:
        """The ranks of a host."""
        return self._by_host.get(host, [])

    @property
    def after_the_fact(self) -> bool:
        """Whether only the dumps that torch left behind were read, and no process."""
        return any(host.dumps is not None for host in self.hosts)

    @property
    def undated(self) -> bool:
        """Whether it is not known when these dumps were written, so that nothing has an age."""
        return any(host.dumps is not None and host.wall_us is None for host in self.hosts)

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
        by_example: dict[int, list[int]] = {}
        for rank in self.living:
            if rank.like is not None:
                by_example.setdefault(rank.like, []).append(rank.rank)
        return by_example

    def alike(self, number: int) -> tuple[int, ...]:
        """A rank with evidence of its own, and those that are like it."""
        return (number, *self._alike.get(number, ()))

    @cached_property
    def waiting(self) -> tuple[Class, ...]:
        """Classes that wait for other ranks."""
        return tuple(alike for alike in self.classes if alike.first.waits)

    @cached_property
    def still(self) -> tuple[Class, ...]:
        """Those of them that made no progress."""
        return tuple(alike for alike in self.waiting if not alike.first.moving)

    @cached_property
    def still_numbers(self) -> frozenset[int]:
        """The ranks in `still`."""
        return frozenset(numbers_of(self.still))

    def with_conclusions(self, **conclusions: Any) -> "Run":
        """The run with more concluded about it. What was computed from its ranks and hosts is kept."""
        run = structs.replace(self, **conclusions)
        computed = (name for name, value in vars(Run).items() if isinstance(value, cached_property))
        run.__dict__.update({name: self.__dict__[name] for name in computed if name in self.__dict__})
        return run

    def blind_hosts(self) -> list[tuple[str, str]]:
        """Hosts whose sockets could not be read, with the reason. How long their ranks have waited is unknown."""
        return [
            (host.name, host.connections.reason) for host in self.hosts if isinstance(host.connections, Unavailable)
        ]

    def helpers(self, rank: Rank) -> list[Process]:
        """The helper processes of a rank."""
        return self.below.get((rank.host, rank.pid), [])


def once(conclude: Callable[[Run], T]) -> Callable[[Run], T]:
    """A function of a run that several rules and views ask for, and that is computed once: the run keeps its result."""
    name = f"{conclude.__module__}.{conclude.__qualname__}"

    @wraps(conclude)
    def kept(run: Run) -> T:
        if name not in run.__dict__:
            run.__dict__[name] = conclude(run)
        result: T = run.__dict__[name]
        return result

    return kept
