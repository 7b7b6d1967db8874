"""Finds the processes of a host that are ranks: by their first environment, by their interpreter's memory, by their beacon."""

import os

import msgspec

from hangdoc import beacon, run_identity
from hangdoc.launch import launchers
from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.find import identity
from hangdoc.observe.find.rank_from_memory import rank_from_memory
from hangdoc.observe.kernel import process_table
from hangdoc.observe.kernel.process_table import ProcessTable
from hangdoc.observe.memory.maps import is_python, maps_torch
from hangdoc.observe.torch.watchdog_files import beat_of
from hangdoc.parse import natural
from hangdoc.procfs import ProcError, ProcFS, network_of
from hangdoc.run_identity import Names
from hangdoc.snapshot import Launch, RankIdentity, Unavailable
from hangdoc.torch_facts.thread_names import has_process_group

BY_ORDER = "order of start"
"""The source of an identity."""


class Search(msgspec.Struct):
    """The state of a search for ranks on this host."""

    proc: ProcFS
    table: ProcessTable
    wanted: set[int]
    """Processes in the scope, without those of hangdoc."""
    launchers: dict[int, Launch]
    ranks: dict[int, RankIdentity] = msgspec.field(default_factory=dict)
    live_environments: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    """`os.environ` of processes whose memory was read."""

    users: dict[int, int | None] = msgspec.field(default_factory=dict)
    """Uids of processes that were asked for."""
    with_torch: dict[int, bool] = msgspec.field(default_factory=dict)
    with_python: dict[int, bool] = msgspec.field(default_factory=dict)

    def user(self, pid: int) -> int | None:
        """The real uid of a process; None if it can't be read."""
        if pid not in self.users:
            self.users[pid] = process_table.user_of(self.proc, pid)
        return self.users[pid]

    def maps_torch(self, pid: int) -> bool:
        """As the function, once for each process: its maps may be long."""
        if pid not in self.with_torch:
            self.with_torch[pid] = maps_torch(self.proc, pid)
        return self.with_torch[pid]

    def is_python(self, pid: int) -> bool:
        """As the function, once for each process."""
        if pid not in self.with_python:
            self.with_python[pid] = is_python(self.proc, pid)
        return self.with_python[pid]

    def below_a_rank(self, pid: int) -> bool:
        return any(ancestor in self.ranks for ancestor in self.table.ancestors(pid))


def find(search: Search, deadline: Deadline) -> None:
    """Fill in the ranks among the wanted processes, the cheapest evidence first."""
    _find_by_environment(search)
    _find_in_memory(search, deadline)
    keep_one_of_each_tree(search)
    _find_by_beacon(search, deadline)
    _find_by_order(search)


def _find_by_environment(search: Search) -> None:
    identities: dict[int, RankIdentity] = {}
    names: dict[int, Names] = {}
    for pid in search.wanted - set(search.launchers):
        environment = search.table[pid].environment
        if isinstance(environment, Unavailable):
            continue
        network = network_of(search.proc, pid)
        if (who := identity.by_environment(environment, network)) is not None:
            identities[pid], names[pid] = who, run_identity.names(environment, network)
    search.ranks |= _choose_representatives(search, identities, names)


def _choose_representatives(
    search: Search, identities: dict[int, RankIdentity], names: dict[int, Names]
) -> dict[int, RankIdentity]:
    """One process for each identity. Several processes of a tree inherit the same variables. The rank is the topmost Python
    process with torch, or the topmost Python process if none has loaded torch yet. Above it are shells and wrapper programs."""
    table = search.table
    chosen: dict[int, RankIdentity] = {}

    def same(first: int, other: int) -> bool:
        if _are_same_rank(identities[first], identities[other]):
            return True
        return identities[first].rank == identities[other].rank and run_identity.are_same(names[first], names[other])

    for pid in sorted(identities, key=lambda p: sum(1 for _ in table.ancestors(p))):
        who = identities[pid]
        if not search.is_python(pid):
            continue
        if not search.maps_torch(pid) and any(
            below in identities and same(below, pid) and search.maps_torch(below) for below in table.descendants(pid)
        ):
            continue
        # torch's variables prove a rank by themselves. Those of MPI and Slurm do not: every program gets them.
        if who.source != identity.TORCH and (not search.maps_torch(pid) or _starts_ranks(search, pid)):
            continue
        nearest = next((a for a in table.ancestors(pid) if a in search.launchers or a in chosen), None)
        if nearest not in chosen or not same(nearest, pid):
            chosen[pid] = who
    # If a container's environment names a rank, every process in it looks like that rank: those with torch win.
    by_rank: dict[tuple[object, ...], list[int]] = {}
    for pid, who in chosen.items():
        by_rank.setdefault((who.rank, who.run, search.user(pid)), []).append(pid)
    for pids in by_rank.values():
        with_torch = [pid for pid in pids if search.maps_torch(pid)] if len(pids) > 1 else []
        for pid in pids:
            if with_torch and pid not in with_torch:
                del chosen[pid]
    return chosen


def _are_same_rank(first: RankIdentity, other: RankIdentity) -> bool:
    return (first.rank, first.run) == (other.rank, other.run)


def _starts_ranks(search: Search, pid: int) -> bool:
    """Whether a process only starts ranks below it, such as a task of srun that spawns one rank per GPU."""
    return not communicates(search.proc, pid) and any(
        communicates(search.proc, below) for below in search.table.descendants(pid)
    )


def communicates(proc: ProcFS, pid: int) -> bool:
    """Whether a process has threads of a backend of torch, and so a process group."""
    try:
        return any(map(has_process_group, proc.thread_names(pid)))
    except ProcError:
        return False


def _find_in_memory(search: Search, deadline: Deadline) -> None:
    """Search the memory of processes with torch whose environment names no rank."""

    def read(pid: int) -> None:
        if pid in search.ranks or pid in search.launchers or not search.maps_torch(pid):
            return
        # A rank may start other ranks. Those of its helpers that are no ranks have no threads of a backend: fork(2) copies none.
        if search.below_a_rank(pid) and not communicates(search.proc, pid):
            return
        entry = search.table[pid]
        forked = search.maps_torch(entry.stat.ppid)
        who, environment = rank_from_memory(search.proc, deadline, pid, entry.argv, forked)
        search.live_environments[pid] = environment
        if who:
            search.ranks[pid] = who

    # Parents before children, unless pids have wrapped around.
    isolation.shared.read_each(sorted(search.wanted), read, deadline)


def keep_one_of_each_tree(search: Search) -> None:
    """Of a process and its descendant that look like the same rank, keep the one that communicates. If a process has its rank in
    `os.environ` only, its descendants start with it: dataloader workers that a rank spawns, or the rank that a script starts."""
    for pid, who in list(search.ranks.items()):
        for above in search.table.ancestors(pid):
            if above in search.ranks and _are_same_rank(search.ranks[above], who):
                if communicates(search.proc, above):
                    search.ranks.pop(pid, None)
                elif communicates(search.proc, pid):
                    del search.ranks[above]


def _find_by_beacon(search: Search, deadline: Deadline) -> None:

    def read(pid: int) -> beacon.Beat | None:
        entry = search.table[pid]
        if not search.is_python(pid):
            return None
        return beat_of(search.proc, pid, entry.stat.start_ticks, entry.environment)

    others = sorted(search.wanted - set(search.ranks) - set(search.launchers))
    for pid, beat in isolation.shared.read_each(others, read, deadline).items():
        if isinstance(beat, beacon.Beat) and beat.rank is not None and not search.below_a_rank(pid):
            search.ranks[pid] = RankIdentity(
                rank=beat.rank, source="beacon", world_size=beat.world_size, run_digest=beat.run_digest
            )


def _find_by_order(search: Search) -> None:
    """Ranks that may not be read at all, of another user or in a container without CAP_SYS_PTRACE: torchrun starts those of its
    node in the order of their local ranks (torch/distributed/elastic/multiprocessing/api.py), which are the ranks if this is the
    only node. Nothing is concluded if one of them is not there any more."""
    for pid, launch in search.launchers.items():
        count = natural(launch.nproc_per_node)
        if launch.tool != "torchrun" or count is None or launch.nnodes not in (None, "1", "1:1"):
            continue
        children = [search.table[child] for child in search.table.children(pid)]
        if len(children) != count or not all(isinstance(entry.environment, Unavailable) for entry in children):
            continue
        for rank, entry in enumerate(sorted(children, key=lambda entry: (entry.stat.start_ticks, entry.pid))):
            if entry.stat.state not in "ZX" and entry.pid in search.wanted:
                search.ranks[entry.pid] = RankIdentity(
                    rank=rank, source=BY_ORDER, local_rank=rank, world_size=count, local_world_size=count
                )


def launchers_of(table: ProcessTable) -> dict[int, Launch]:
    """All launchers of the host that are alive. `bash -c "torchrun ..."` and a pager that shows the word are not launchers: the
    program itself must be one."""
    launches = {}
    for pid, entry in table.items():
        variables = entry.environment if isinstance(entry.environment, dict) else None
        launch = launchers.launch_of(entry.stat.name, entry.argv, variables)
        if launch is not None and entry.stat.state not in "ZX" and pid != os.getpid():
            launches[pid] = launch
    return launches
