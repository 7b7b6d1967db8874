"""The processes of one run, before anything is concluded about its ranks: its ranks, its launchers, what works for them, and
how it is called.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from hangdoc.reasoning.model.run import Placed
from hangdoc.regex import regex
from hangdoc.snapshot import Host, Process, RankIdentity


class Gathered(msgspec.Struct):
    """The processes of one run."""

    name: str
    """Equal for processes that belong together by their variables or their launch line."""
    master: str | None = None
    run_id: str | None = None
    alone_on: str | None = None
    """The host that all of the run is on, where its meeting point is a loopback address."""
    members: list[Placed] = msgspec.field(default_factory=list)
    """Ranks with an identity."""
    launchers: list[Placed] = msgspec.field(default_factory=list)
    zombies: list[Placed] = msgspec.field(default_factory=list)
    """Ended processes that may have been ranks of this run."""
    copies: dict[int, Placed] = msgspec.field(default_factory=dict)
    """Processes that were forked from ranks and have their variables, by rank."""
    duplicates: list[Placed] = msgspec.field(default_factory=list)
    """Processes that were started with these ranks, and got the number of one of them again."""
    left_over: int = 0
    """Above 0 for the ranks of an earlier run of the same name; counts them."""

    @property
    def processes(self) -> list[Placed]:
        """Its ranks and its launchers."""
        return [*self.members, *self.launchers]

    @property
    def identities(self) -> list[RankIdentity]:
        """Of its ranks."""
        return [process.identity for _, process in self.members if process.identity is not None]

    @property
    def numbers(self) -> set[int]:
        """Its ranks."""
        return {identity.rank for identity in self.identities}

    @property
    def by_rank(self) -> dict[int, Placed]:
        """The process of each rank."""
        return {identity.rank: place for identity, place in zip(self.identities, self.members, strict=True)}

    @property
    def stores(self) -> set[int]:
        """Ports of its stores, as its variables name them."""
        return {identity.master_port for identity in self.identities if identity.master_port is not None}


# --- ids of jobs ------------------------------------------------------------------------------------------------------


CLUSTER_RUNS = ("mpi:", "slurm:", "dumps:")
"""How the names of runs begin that a cluster's launcher, or hangdoc for dumps, has given."""
_LIKE_AN_ENDING = regex(r"#(?:\d+$|uid)")


class JobId(NamedTuple):
    """How a job is called.

    A job is called by what its launcher and its variables say: `none@10.0.0.1:29500`. Anybody can give a process these variables,
    and anybody can listen at a loopback address of another host. So each job also has a full id, which ends with what nobody can
    claim: the owner of its processes, and the host of a loopback address. The full id is shown where two owners claim one name,
    and is accepted everywhere. Nobody's name is another's full id.
    """

    shown: str
    """Unique in its look."""
    full: str
    """Unique, and independent of what other users claim."""
    name: str | None
    """What its launcher and variables say; None if this looks like the full id of a job."""


def ids_of(parts: Sequence[Gathered]) -> list[JobId]:
    """The ids of all jobs, which are in the order of their names. Of those with one name and one owner, the run itself comes
    before what is left of earlier ones."""
    owners: dict[str, set[str]] = {}
    for part in parts:
        owners.setdefault(name_of(part), set()).add(_owner(part))
    counts: dict[tuple[str, str], int] = {}
    taken: set[str] = set()
    ids = []
    for part in parts:
        name, owner = name_of(part), _owner(part)
        number = counts[name, owner] = counts.get((name, owner), 0) + 1
        ending = f"#{number}" if number > 1 else ""
        is_plain = _LIKE_AN_ENDING.search(name) is None
        full = _not_in(f"{name}{owner}{ending}", taken)
        shown = _not_in(f"{name}{ending}", taken) if is_plain and len(owners[name]) == 1 else full
        taken |= {full, shown}
        ids.append(JobId(shown, full, name if is_plain else None))
    return ids


def name_of(part: Gathered) -> str:
    """What its launcher and variables say: `slurm:7.0`, `none@10.0.0.1:29500`."""
    if part.run_id is not None and part.run_id.startswith(CLUSTER_RUNS):
        return part.run_id
    return f"{part.run_id or 'run'}@{part.master}" if part.master is not None else part.name


def _owner(part: Gathered) -> str:
    """`#uid1000`, and with a loopback address `#uid1000@node1`."""
    uid = next((process.uid for _, process in part.processes if process.uid is not None), "?")
    return f"#uid{uid}" + (f"@{part.alone_on}" if part.alone_on is not None else "")


def _not_in(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken: a host may call itself as it likes."""
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}#{number}"
    return free


# --- helper processes -------------------------------------------------------------------------------------------------


Helpers = dict[tuple[str, int | None], list[Process]]
_RESOURCE_TRACKER = "from multiprocessing.resource_tracker import main"
"""What it runs (multiprocessing/resource_tracker.py, `ResourceTracker.ensure_running`)."""


class HelperIndex:
    """The processes below each rank of each host. Each host is read once, because it may have many runs."""

    def __init__(self) -> None:
        self._of_host: dict[int, tuple[Host, dict[int | None, list[Process]]]] = {}
        """By the identity of the host, which is kept with it."""

    def on(self, hosts: Iterable[Host], ranks: Collection[tuple[str, int]]) -> Helpers:
        """The helper processes of each of `ranks`, by its host and pid. The processes of another run that a rank has started work
        for it too; those in `ranks` are the run's own, of which one may have started the others."""
        by_name = {host.name: self._below(host) for host in hosts}
        helpers: Helpers = {}
        for name, pid in ranks:
            below = [
                process
                for process in by_name.get(name, {}).get(pid, ())
                if process.role == "helper" or (name, process.pid) not in ranks
            ]
            if below:
                helpers[name, pid] = below
        return helpers

    def _below(self, host: Host) -> dict[int | None, list[Process]]:
        """The helpers, and the ranks and launchers of other runs, below each rank of a host."""
        if id(host) not in self._of_host:
            by_pid = {process.pid: process for process in host.processes}
            nearest: dict[int, int | None] = {}
            below: dict[int | None, list[Process]] = {}
            for process in host.processes:
                if _is_resource_tracker(process):
                    continue
                helper = process.role == "helper"
                owner = process.owner if helper else _nearest_rank(process.ppid, by_pid, nearest)
                if helper or owner is not None:
                    below.setdefault(owner, []).append(process)
            self._of_host[id(host)] = host, below
        return self._of_host[id(host)][1]


def _is_resource_tracker(process: Process) -> bool:
    """Whether it is the process by which Python's multiprocessing removes what is left of semaphores and shared memory. It does
    nothing for the program, and reads a pipe until the last process of that has ended."""
    return process.argv[-2:-1] == ("-c",) and process.argv[-1].startswith(_RESOURCE_TRACKER)


def _nearest_rank(pid: int, by_pid: dict[int, Process], nearest: dict[int, int | None]) -> int | None:
    """The first rank among a process of a host and its ancestors; None if there is none. `nearest`: what is known already."""
    path: list[int] = []
    rank: int | None = None
    while (process := by_pid.get(pid)) is not None:
        if pid in nearest:
            rank = nearest[pid]
            break
        if process.role == "rank":
            rank = pid
            break
        nearest[pid] = None  # until it is known: who comes here again has gone round in a circle
        path.append(pid)
        pid = process.ppid
    nearest.update(dict.fromkeys(path, rank))
    return rank
