"""From processes to runs: which ranks and launchers belong together.

Evidence, in order: what the launcher calls the run, the meeting point (`hangdoc.run_identity` makes both one name), live
connections between the ranks, the launcher that started them. A parent's pid proves nothing: `nohup`, `setsid` and containers
give healthy ranks the parent 1.
"""

from collections.abc import Iterable

import msgspec

from hangdoc import run_identity
from hangdoc.parse import natural
from hangdoc.reasoning.model import Placed, environment_of
from hangdoc.reasoning.runs.absent import has_met
from hangdoc.reasoning.runs.links import peers_by_connection
from hangdoc.reasoning.runs.strayed import join_strayed
from hangdoc.snapshot import Host, Launch, Process, RankIdentity, Snapshot


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
    left_over: int = 0
    """Above 0 for the ranks of an earlier run of the same name; counts them."""

    @property
    def numbers(self) -> set[int]:
        """Its ranks."""
        return _numbers_of(self.members)


def _numbers_of(members: Iterable[Placed]) -> set[int]:
    """The ranks that some processes are."""
    return {process.identity.rank for _, process in members if process.identity is not None}


def gather(snapshot: Snapshot) -> list[Gathered]:
    """All runs of a snapshot."""
    found: dict[str, Gathered] = {}
    zombies: list[Placed] = []
    for host in snapshot.hosts:
        for process in host.processes:
            if process.role == "rank" and process.identity is not None:
                run = _start(found, host, process, process.identity)
                run.members.append((host, process))
            elif process.role == "rank":
                zombies.append((host, process))
    joined = _join_connected(list(found.values()), snapshot)
    _add_launchers(joined, snapshot)
    _join_waiting_agents(joined)
    join_strayed(joined)
    runs = [part for run in joined for part in _split(run)]
    for place in zombies:
        parents = [run for run in runs if _is_parent_of(run, place)]
        for run in parents[:1]:
            run.zombies.append(place)
    return runs


def _start(found: dict[str, Gathered], host: Host, process: Process, who: RankIdentity) -> Gathered:
    """The run that a rank belongs to by its variables, made where it is the first."""
    address, port = who.master_address, who.master_port
    if address is None:  # set after the start, as many scripts under srun and mpirun do
        now = environment_of(process)
        address, port = now.get("MASTER_ADDR"), natural(now.get("MASTER_PORT"))
    master = f"{address}:{port}" if address is not None else None
    digest = run_identity.digest_of(who)
    network = process.namespaces.get("net", host.name)
    local = address is not None and run_identity.is_loopback(address)
    if digest is not None:
        name = digest
    elif master is not None:
        name = f"{who.run_id}@{master} {network if local else ''}"
    else:
        name = f"{host.name}:{process.owner or process.pid}"
    run = found.get(name) or found.setdefault(name, Gathered(name))
    run.master = run.master or master
    run.run_id = run.run_id or _shown(who)
    run.alone_on = run.alone_on or (host.name if local else None)
    return run


def _shown(who: RankIdentity) -> str | None:
    """How a person would call the run."""
    cluster = who.run is not None and who.run.startswith(("mpi:", "slurm:"))
    return who.run if cluster else who.run_id


def _join_connected(runs: list[Gathered], snapshot: Snapshot) -> list[Gathered]:
    """Runs whose ranks are connected to each other are one, whatever their variables say; but never two ranks of one
    number."""
    if len(runs) < 2:
        return runs
    of = {(host.name, process.pid): run for run in runs for host, process in run.members}
    for one, other in peers_by_connection(snapshot.hosts, set(of), store_ports(runs)):
        kept, gone = of[one], of[other]
        if kept is gone or kept.numbers & gone.numbers:
            continue
        kept.members += gone.members
        kept.master, kept.run_id = kept.master or gone.master, kept.run_id or gone.run_id
        kept.alone_on = kept.alone_on or gone.alone_on
        for host, process in gone.members:
            of[host.name, process.pid] = kept
        gone.members = []
    return [run for run in runs if run.members]


def store_ports(runs: Iterable[Gathered]) -> set[int]:
    """Ports of the runs' stores, as their variables name them."""
    identities = (process.identity for run in runs for _, process in run.members)
    return {who.master_port for who in identities if who is not None and who.master_port is not None}


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
        for process in host.processes:
            if process.role != "launcher":
                continue
            run = owners.get(process.pid) or _above_a_launcher(process, host, owners)
            if run is None:
                run = _from_launch_line(alone, host, process)
            run.launchers.append((host, process))
    runs += [run for run in alone.values() if any(is_agent(process) for _, process in run.launchers)]


def is_agent(process: Process) -> bool:
    """Whether a launcher starts nothing but ranks; srun and mpirun start anything."""
    return process.launch is not None and process.launch.tool in ("torchrun", "accelerate", "deepspeed")


def _above_a_launcher(process: Process, host: Host, owners: dict[int | None, Gathered]) -> Gathered | None:
    """The run of a launcher above another launcher (srun above torchrun)."""
    by_pid = {other.pid: other for other in host.processes}
    for owner, run in owners.items():
        pid, seen = owner, 0
        while pid is not None and pid in by_pid and seen < 16:
            if by_pid[pid].ppid == process.pid:
                return run
            pid, seen = by_pid[pid].ppid, seen + 1
    return None


def _from_launch_line(alone: dict[str, Gathered], host: Host, process: Process) -> Gathered:
    asked = process.launch or Launch(tool="?")
    run_id = asked.run_id or "none"
    if asked.endpoint is None:
        name, local = f"{host.name}:{process.pid}", False
    else:
        local = run_identity.is_loopback(asked.endpoint.rpartition(":")[0] or asked.endpoint)
        name = f"{run_id}@{asked.endpoint} {process.namespaces.get('net', host.name) if local else ''}"
    return alone.setdefault(
        name, Gathered(name, master=asked.endpoint, run_id=run_id, alone_on=host.name if local else None)
    )


def _join_waiting_agents(runs: list[Gathered]) -> None:
    """An agent that still waits for its node belongs to the run whose endpoint it was given; not to one that has all of its
    ranks, nor to the left-overs of an earlier one."""
    for agents in [run for run in runs if not run.members and run.master is not None]:
        for run in runs:
            left_over = all(process.launcher_gone for _, process in run.members) or _is_complete(run)
            if run.members and run.master == agents.master and run.alone_on == agents.alone_on and not left_over:
                run.launchers += agents.launchers
                runs.remove(agents)
                break


def _is_complete(run: Gathered) -> bool:
    """Whether all ranks that a run expects are there: then it waits for no node."""
    worlds = {process.identity.world_size for _, process in run.members if process.identity is not None}
    return worlds == {len(run.numbers)}


# --- left-overs ------------------------------------------------------------------------------------------------------


def _split(run: Gathered) -> list[Gathered]:
    """A run, and apart from it the ranks of earlier ones that have its name: those whose number is taken, and those that lost
    their launcher and can't belong to the ranks of a living one."""
    if len(run.members) < 2 or not (_has_doubles(run) or _differs(p.launcher_gone for _, p in run.members)):
        return [run]
    layers: list[list[Placed]] = []
    # Ranks whose launcher is alive first, the youngest first: what is left over is an earlier run.
    for part in sorted(_parts(run), key=lambda part: min((p.launcher_gone, p.started_seconds_ago) for _, p in part)):
        layer = next((layer for layer in layers if _fits(layer, part)), None)
        if layer is None:
            layers.append(layer := [])
        layer += part
    first, *others = layers
    run.members = first
    return [
        run,
        *(
            Gathered(run.name, run.master, run.run_id, run.alone_on, members, left_over=number)
            for number, members in enumerate(others, 1)
        ),
    ]


def _has_doubles(run: Gathered) -> bool:
    return len(run.numbers) < len(run.members)


def _differs(values: Iterable[object]) -> bool:
    return len(set(values)) > 1


def _parts(run: Gathered) -> list[list[Placed]]:
    """The ranks that are proven to belong together: by live connections, or by one launcher that is alive."""
    part_of = {(host.name, process.pid): [(host, process)] for host, process in run.members}
    hosts = tuple({host.name: host for host, _ in run.members}.values())
    pairs = list(peers_by_connection(hosts, set(part_of), store_ports([run])))
    agents = {(host.name, process.pid) for host, process in run.launchers}
    started: dict[tuple[str, int | None], tuple[str, int]] = {}
    for host, process in run.members:
        owner = (host.name, process.owner)
        if owner in agents:
            pairs.append((started.setdefault(owner, (host.name, process.pid)), (host.name, process.pid)))
    for one, other in pairs:
        kept, gone = part_of[one], part_of[other]
        if kept is not gone and not _numbers_of(kept) & _numbers_of(gone):
            kept += gone
            for host, process in gone:
                part_of[host.name, process.pid] = kept
    return list({id(part): part for part in part_of.values()}.values())


def _fits(layer: list[Placed], part: list[Placed]) -> bool:
    """Whether ranks that are not connected to those of a layer may be of one run with them."""
    if _numbers_of(layer) & _numbers_of(part):
        return False
    if not _differs(p.launcher_gone for _, p in (*layer, *part)):
        return True
    # One side has lost its launcher. On one node a run has one launcher; and who is past the rendezvous has met all ranks
    # of its run, so that one who still waits there belongs to another.
    nodes = {(host.name, _node(process)) for host, process in layer}
    same_node = any((host.name, _node(process)) in nodes for host, process in part)
    return not same_node and not _differs(has_met(process) for _, process in (*layer, *part))


def _node(process: Process) -> int | None:
    return process.identity.node_rank if process.identity is not None else None


def _is_parent_of(run: Gathered, place: Placed) -> bool:
    host, zombie = place
    parents = {(h.name, p.pid) for h, p in run.launchers} | {(h.name, p.ppid) for h, p in run.members if p.ppid > 1}
    return (host.name, zombie.ppid) in parents
