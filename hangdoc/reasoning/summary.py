"""The summary of a host in a large run: of the ranks that wait in one collective and are alike, the evidence of one."""

from collections.abc import Collection

from msgspec.structs import replace

from hangdoc.reasoning.build.runs import build_runs
from hangdoc.reasoning.causes import disagreements
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import positions
from hangdoc.shared_ranks import Pattern, common, own_of
from hangdoc.snapshot import Clocks, Environment, Host, Process, Snapshot

_Like = dict[tuple[str, int | None], tuple[Process, Rank]]
"""By host and pid of a rank, the process that it is like, and the rank."""


def summarized(snapshot: Snapshot) -> Snapshot:
    """The snapshot without most evidence of those ranks that are like a lower one of their host. Only ranks that wait in a
    collective can be alike: of all others, each may have a reason of its own, like a file or an address. They must be equal in
    all but what always differs (`shared_ranks.common`). Their helper processes that sleep are left out."""
    like: _Like = {}
    moved = {(host.name, c.pid) for host in snapshot.hosts for c in observed.connections(host) if c.bytes_moved}
    for run in build_runs(snapshot, 0.0):
        for ranks in run.classes:
            wait = ranks.first.wait
            if wait is not None and wait.kind == "collective" and not ranks.first.moving:
                like |= _alike(run, ranks, moved)
    return replace(snapshot, hosts=tuple(_summary(host, like) for host in snapshot.hosts))


def _summary(host: Host, like: _Like) -> Host:
    whole: list[Process] = []
    ranks: list[Process] = []
    patterns: dict[int, Pattern] = {}
    for process in host.processes:
        if (host.name, process.pid) in like:
            first, rank = like[host.name, process.pid]
            pattern = patterns.get(first.pid) or patterns.setdefault(first.pid, Pattern.from_process(first))
            ranks.append(pattern.rank(replace(own_of(process, first), idle_seconds=rank.idle_seconds)))
        elif process.role != "helper" or process.state != "S" or (host.name, process.owner) not in like:
            whole.append(process)
    return replace(host, processes=(*whole, *ranks))


def _alike(run: Run, ranks: Class, moved: Collection[tuple[str, int | None]]) -> _Like:
    """The ranks of a class that are like a lower one of their host. Those with a connection on which bytes moved may be at work
    with a rank of another host."""
    like: _Like = {}
    kept: dict[str, list[tuple[Process, Rank, Process]]] = {}
    for rank in (run.ranks[number] for number in ranks.ranks):
        process = rank.process
        if process is None or (rank.host, process.pid) in moved or not _is_comparable(process):
            continue
        mine = common(process)
        those = kept.setdefault(rank.host, [])
        first = next((first for first, other, theirs in those if theirs == mine and _agree(run, other, rank)), None)
        if first is None:
            those.append((process, rank, mine))
        else:
            like[rank.host, process.pid] = first, rank
    return like


def _is_comparable(process: Process) -> bool:
    """Whether enough of a rank was read to compare it with others."""
    read = isinstance(process.clocks, Clocks) and isinstance(process.environment, Environment)
    return read and process.identity is not None and process.like is None


def _agree(run: Run, first: Rank, other: Rank) -> bool:
    """Whether two ranks agree in what the steps after the classes compare. Another host may have another common loop, so they
    must be at the same point of every loop."""
    mine, theirs = (rank.process.environment if rank.process is not None else None for rank in (first, other))
    names = [variables.variables.keys() for variables in (mine, theirs) if isinstance(variables, Environment)]
    return names[0] == names[-1] and positions(first) == positions(other) and disagreements.agree(first, other)
