"""From processes to runs: which ranks and launchers belong together.

Evidence, in order: what the launcher calls the run, the meeting point (`hangdoc.run_identity` makes both one name), live
connections between the ranks, the launcher that started them. A parent's pid proves nothing: `nohup`, `setsid` and containers
give healthy ranks the parent 1.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from hangdoc import run_identity
from hangdoc.parse import natural
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.records import backend_names
from hangdoc.reasoning.evidence.stack import meeting_call_of
from hangdoc.reasoning.model.run import Placed
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.runs.links import peers_by_connection
from hangdoc.reasoning.runs.misleading_names import find_duplicates, join_strayed, layers_of
from hangdoc.reasoning.runs.processes import CLUSTER_RUNS, Gathered
from hangdoc.snapshot import Host, Launch, Process, RankIdentity, Snapshot
from hangdoc.torch_facts.launchers import AGENTS

_MOST_ANCESTORS = 16


def gather_runs(snapshot: Snapshot) -> list[Gathered]:
    """All runs of a snapshot. Processes of two users of one host are never one run: anybody can give a process the variables of
    somebody else's run."""
    return [run for part in _by_user(snapshot) for run in _gather(part)]


def _by_user(snapshot: Snapshot) -> list[Snapshot]:
    """The snapshot with the processes of each user alone, if a host has several. Across hosts, uids may differ for one user."""
    by_host = [{process.pid: process for process in host.processes} for host in snapshot.hosts]
    if all(len({process.uid for process in processes.values()} - {None}) < 2 for processes in by_host):
        return [snapshot]
    parts: dict[int | None, dict[str, tuple[Host, list[Process]]]] = {}
    for host, processes in zip(snapshot.hosts, by_host, strict=True):
        for process in host.processes:
            user = _user_of(process, processes)
            parts.setdefault(user, {}).setdefault(host.name, (host, []))[1].append(process)
    return [
        replace(snapshot, hosts=tuple(replace(host, processes=tuple(mine)) for host, mine in parts[user].values()))
        for user in sorted(parts, key=lambda uid: -1 if uid is None else uid)
    ]


def _user_of(process: Process, processes: dict[int, Process]) -> int | None:
    """The uid of a process; of one that has ended, that of the process above it."""
    for pid in (process.pid, process.owner, process.ppid):
        if pid is not None and pid in processes and processes[pid].uid is not None:
            return processes[pid].uid
    return None


def _gather(snapshot: Snapshot) -> list[Gathered]:
    by_name: dict[str, Gathered] = {}
    ended: list[Placed] = []
    for host in snapshot.hosts:
        for process in host.processes:
            if process.role == "rank" and process.identity is not None:
                _run_of(by_name, host, process, process.identity).members.append((host, process))
            elif process.role == "rank":
                ended.append((host, process))
    for run in by_name.values():
        _set_copies_apart(run)
    joined = _join_at_one_address(_join_connected(list(by_name.values()), snapshot))
    _add_launchers(joined, snapshot)
    _join_waiting_agents(joined)
    join_strayed(joined)
    runs = [part for run in joined for part in _split(run)]
    _add_ended(runs, ended)
    return runs


def _run_of(runs: dict[str, Gathered], host: Host, process: Process, identity: RankIdentity) -> Gathered:
    """The run that a rank belongs to by its variables, made where it is the first."""
    address, port = identity.master_address, identity.master_port
    if address is None:  # set after the start, as many scripts under srun and mpirun do
        now = observed.environment(process)
        address, port = now.get("MASTER_ADDR"), natural(now.get("MASTER_PORT"))
    master = f"{address}:{port}" if address is not None else None
    digest = run_identity.digest_of(identity)
    local = _loopback_of(host, process, address)
    if digest is not None:
        name = f"{digest} {local or ''}"
    elif master is not None:
        name = f"{identity.run_id}@{master} {local or ''}"
    else:
        name = f"{host.name}:{process.owner or process.pid}"
    run = runs.setdefault(name, Gathered(name))
    run.master = run.master or master
    run.run_id = run.run_id or _shown(identity)
    run.alone_on = run.alone_on or (host.name if local else None)
    return run


def _add_ended(runs: Iterable[Gathered], ended: Iterable[Placed]) -> None:
    """Give each ended process to the run of the process that started it."""
    parents: dict[tuple[str, int], Gathered] = {}
    for run in runs:
        for host, process in run.launchers:
            parents.setdefault((host.name, process.pid), run)
        for host, process in run.members:
            if process.ppid > 1:
                parents.setdefault((host.name, process.ppid), run)
    for host, process in ended:
        if (parent := parents.get((host.name, process.ppid))) is not None:
            parent.zombies.append((host, process))


def _set_copies_apart(run: Gathered) -> None:
    """Processes that were forked from a rank and have its variables are no ranks: it may have ended since. Where there are only
    such processes, they stay, so that they are seen."""
    # An orphan has no launcher among its ancestors.
    copies = [place for place in run.members if place[1].owner is None and _is_copy(place[1])]
    if 0 < len(copies) < len(run.members):
        copied = set(map(id, copies))
        run.members = [place for place in run.members if id(place) not in copied]
        run.copies = {place[1].identity.rank: place for place in copies if place[1].identity is not None}


def _is_copy(process: Process) -> bool:
    """Whether a process was forked from a rank: its memory has a Gloo group, and it has only threads of Python. Gloo starts
    others for each group, and fork(2) copies the calling thread alone."""
    threads, python = observed.threads(process), observed.python_threads(process)
    if not threads or len(threads) > len(python):
        return False
    of_python = {thread.tid if thread.tid is not None else process.pid for thread in python}
    if not {thread.tid for thread in threads} <= of_python:
        return False
    return any("gloo" in backend_names(group.backend) for group in observed.groups(process))


def _loopback_of(host: Host, process: Process, address: str | None) -> str | None:
    """Which loopback network an address names: the first network namespace has the same number on all hosts. None for any other
    address."""
    if address is None or not run_identity.is_loopback(address):
        return None
    return f"{host.name} {_network_of(host, process)}"


def _network_of(host: Host, process: Process) -> str:
    """The network namespace of a process. One that has ended has none: that of the process that started it."""
    if "net" in process.namespaces:
        return process.namespaces["net"]
    above = (each for each in host.processes if each.pid in (process.owner, process.ppid))
    return next((each.namespaces["net"] for each in above if "net" in each.namespaces), "")


def _shown(identity: RankIdentity) -> str | None:
    """How a person would call the run."""
    cluster = identity.run is not None and identity.run.startswith(CLUSTER_RUNS)
    return identity.run if cluster else identity.run_id


def _join_connected(runs: list[Gathered], snapshot: Snapshot) -> list[Gathered]:
    """Runs whose ranks are connected to each other are one, whatever their variables say; but never two ranks of one
    number."""
    if len(runs) < 2:
        return runs
    run_of = {(host.name, process.pid): run for run in runs for host, process in run.members}
    numbers = {run.name: run.numbers for run in runs}
    stores = set().union(*(run.stores for run in runs))
    for process_key, other_key in peers_by_connection(snapshot.hosts, set(run_of), stores):
        kept, gone = run_of[process_key], run_of[other_key]
        if kept is gone or not numbers[kept.name].isdisjoint(numbers[gone.name]):
            continue
        numbers[kept.name] |= numbers[gone.name]
        for host, process in gone.members:
            run_of[host.name, process.pid] = kept
        _merge(kept, gone)
    return [run for run in runs if run.members]


def _join_at_one_address(runs: list[Gathered]) -> list[Gathered]:
    """Runs without a common name whose ranks wait at one `init_method="tcp://..."` are one, but never two ranks of one number."""
    by_address: dict[tuple[str | None, str], Gathered] = {}
    for run in [run for run in runs if run.master is None]:
        calls = (meeting_call_of(process) for _, process in run.members)
        methods = {call.init_method for call in calls if call is not None}
        method = methods.pop() if len(methods) == 1 else None
        if method is None or not method.startswith("tcp://"):
            continue
        address = method.removeprefix("tcp://")
        host, process = run.members[0]
        local = _loopback_of(host, process, address.rpartition(":")[0])
        kept = by_address.setdefault((local, address), run)
        if kept is not run and kept.numbers.isdisjoint(run.numbers):
            kept.alone_on = kept.alone_on or (host.name if local else None)
            _merge(kept, run)
    return [run for run in runs if run.members]


def _merge(kept: Gathered, gone: Gathered) -> None:
    """Move the ranks of a run to another one."""
    kept.members += gone.members
    kept.copies |= gone.copies
    kept.master, kept.run_id = kept.master or gone.master, kept.run_id or gone.run_id
    kept.alone_on = kept.alone_on or gone.alone_on
    gone.members = []


# --- launchers -------------------------------------------------------------------------------------------------------


def _add_launchers(runs: list[Gathered], snapshot: Snapshot) -> None:
    """Give each launcher to the run whose ranks it started, else to the run that its launch line names, else make it a run
    of its own."""
    by_owner: dict[str, dict[int | None, Gathered]] = {}
    for started in runs:
        for host, process in started.members:
            by_owner.setdefault(host.name, {})[process.owner] = started
    alone: dict[str, Gathered] = {}
    for host in snapshot.hosts:
        owners = by_owner.get(host.name, {})
        above = _above_launchers(host, owners)
        for process in host.processes:
            if process.role != "launcher":
                continue
            run = owners.get(process.pid) or above.get(process.pid)
            if run is None:
                run = _from_launch_line(alone, host, process)
            run.launchers.append((host, process))
    runs += [run for run in alone.values() if any(is_agent(process) for _, process in run.launchers)]


def is_agent(process: Process) -> bool:
    """Whether a launcher starts nothing but ranks; srun and mpirun start anything."""
    return process.launch is not None and process.launch.tool in AGENTS


def _above_launchers(host: Host, owners: dict[int | None, Gathered]) -> dict[int, Gathered]:
    """The run of each process above a launcher of ranks (srun above torchrun), by its pid."""
    by_pid = {other.pid: other for other in host.processes}
    above: dict[int, Gathered] = {}
    for owner, run in owners.items():
        pid = owner
        for _ in range(_MOST_ANCESTORS):
            if pid is None or pid not in by_pid:
                break
            pid = by_pid[pid].ppid
            above.setdefault(pid, run)
    return above


def _from_launch_line(alone: dict[str, Gathered], host: Host, process: Process) -> Gathered:
    line = process.launch or Launch(tool="?")
    run_id = line.run_id or "none"
    local = _loopback_of(host, process, line.endpoint.rpartition(":")[0] or line.endpoint) if line.endpoint else None
    if line.endpoint is None or launch.takes_free_port(process):
        name = f"{host.name}:{process.pid}"
    else:
        name = f"{run_id}@{line.endpoint} {local or ''}"
    return alone.setdefault(
        name, Gathered(name, master=line.endpoint, run_id=run_id, alone_on=host.name if local else None)
    )


def _join_waiting_agents(runs: list[Gathered]) -> None:
    """An agent that still waits for its node belongs to the run whose endpoint it was given; not to one that has all of its
    ranks, nor to the left-overs of an earlier one. Where an elastic run has all of its ranks, the agents that wait in the same
    rendezvous are spare."""
    position: dict[_MeetingPoint | _Rendezvous, int] = {}
    for at, run in enumerate(runs):
        if run.members:
            if not (_is_complete(run) or all(process.launcher_gone for _, process in run.members)):
                position.setdefault((run.master, run.alone_on), at)
            for rendezvous in _rendezvous_of(run):
                position.setdefault(rendezvous, at)
    joined: set[int] = set()
    for agents in runs:
        if agents.members or agents.master is None:
            continue
        theirs = _rendezvous_of(agents)
        found_at = [position[key] for key in ((agents.master, agents.alone_on), *theirs) if key in position]
        if found_at:
            first = min(found_at)
            runs[first].launchers += agents.launchers
            position.update(dict.fromkeys(theirs, first))
            joined.add(id(agents))
    runs[:] = [run for run in runs if id(run) not in joined]


_MeetingPoint = tuple[str | None, str | None]
"""The endpoint of a run, and its only host where that is a loopback address."""
_Rendezvous = tuple[str | None, str, str]
"""The loopback network, endpoint and id of a rendezvous."""


def _rendezvous_of(run: Gathered) -> set[_Rendezvous]:
    """The rendezvous that the launchers of a run have in their launch lines."""
    return {
        (_loopback_of(host, process, line.endpoint.rpartition(":")[0]), line.endpoint, line.run_id)
        for host, process in run.launchers
        if (line := process.launch) is not None and line.endpoint is not None and line.run_id is not None
    }


def _is_complete(run: Gathered) -> bool:
    """Whether all ranks that a run expects are there: then it waits for no node."""
    return {identity.world_size for identity in run.identities} == {len(run.numbers)}


def _split(run: Gathered) -> list[Gathered]:
    """A run, and apart from it the ranks of earlier ones that have its name: those whose number is taken, and those that lost
    their launcher and can't belong to the ranks of a living one."""
    gone = {process.launcher_gone for _, process in run.members}
    if len(run.members) < 2 or not (len(run.numbers) < len(run.members) or len(gone) > 1):
        return [run]
    run.members, *others = layers_of(run.members, run.launchers, run.stores)
    run.duplicates = find_duplicates(run, others)
    duplicated = set(map(id, run.duplicates))
    others = [members for members in others if not duplicated.issuperset(map(id, members))]
    return [
        run,
        *(
            Gathered(run.name, run.master, run.run_id, run.alone_on, members, left_over=number)
            for number, members in enumerate(others, 1)
        ),
    ]
