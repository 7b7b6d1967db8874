"""The summary of a host in a large run: of the ranks that wait in one collective and are alike, the evidence of one."""

from msgspec.structs import replace

from hangdoc.reasoning.causes import disagreements
from hangdoc.reasoning.model import Class, Rank, Run
from hangdoc.reasoning.runs import build
from hangdoc.shared_ranks import Pattern, common, own_of
from hangdoc.snapshot import Clocks, Environment, Host, Process, Snapshot

_Like = dict[tuple[str, int | None], Process]
"""By host and pid of a rank, the process that it is like."""


def summarized(snapshot: Snapshot) -> Snapshot:
    """The snapshot without most evidence of those ranks that are like a lower one of their host. Only ranks that wait in a
    collective can be alike: of all others, each may have a reason of its own, like a file or an address. They must be equal in
    all but what always differs (`shared_ranks.common`). Their helper processes that sleep are left out."""
    like: _Like = {}
    for run in build.runs(snapshot, 0.0):
        for one in run.classes:
            wait = one.first.wait
            if wait is not None and wait.kind == "collective" and not one.first.moving:
                like |= _alike(run, one)
    return replace(snapshot, hosts=tuple(_summary(host, like) for host in snapshot.hosts))


def _summary(host: Host, like: _Like) -> Host:
    whole: list[Process] = []
    ranks: list[Process] = []
    patterns: dict[int, Pattern] = {}
    for process in host.processes:
        first = like.get((host.name, process.pid))
        if first is None:
            if process.role != "helper" or process.state != "S" or (host.name, process.owner) not in like:
                whole.append(process)
        else:
            pattern = patterns.get(first.pid) or patterns.setdefault(first.pid, Pattern.of(first))
            ranks.append(pattern.rank(own_of(process, first)))
    return replace(host, processes=(*whole, *ranks))


def _alike(run: Run, one: Class) -> _Like:
    """The ranks of a class that are like a lower one of their host."""
    found: _Like = {}
    kept: dict[str, list[tuple[Rank, Process]]] = {}
    for number in one.ranks:
        rank = run.ranks[number]
        if (mine := _comparable(rank)) is None:
            continue
        those = kept.setdefault(rank.host, [])
        same = (first for first, theirs in those if theirs == mine and _agree(run, first, rank))
        if (first := next(same, None)) is not None and first.process is not None and rank.process is not None:
            found[rank.host, rank.process.pid] = first.process
        else:
            those.append((rank, mine))
    return found


def _comparable(rank: Rank) -> Process | None:
    """What must be equal in ranks that are alike; None for a rank of which too little was read."""
    process = rank.process
    if process is None or process.identity is None or process.like is not None:
        return None
    if not isinstance(process.clocks, Clocks) or not isinstance(process.environment, Environment):
        return None
    return common(process)


def _agree(run: Run, one: Rank, other: Rank) -> bool:
    names = [
        rank.process.environment.variables.keys()
        for rank in (one, other)
        if rank.process is not None and isinstance(rank.process.environment, Environment)
    ]
    return names[0] == names[1] and disagreements.agree(run, one, other)
