"""From processes to jobs: which ranks belong together, which are missing, and what each of them is doing."""

import ipaddress
from dataclasses import dataclass
from functools import lru_cache

from hangdoc.diagnose import absent, backends, launch, progress
from hangdoc.diagnose.links import Connected, pairs_of, silent_seconds
from hangdoc.diagnose.model import Placed, Rank, Run
from hangdoc.diagnose.network import interface_with
from hangdoc.diagnose.states import cpu_percent, state_of
from hangdoc.parse import natural
from hangdoc.snapshot import (
    Host,
    Interpreter,
    Launch,
    Process,
    Snapshot,
    Stack,
)

MAX_RANKS = 1 << 20


@dataclass(frozen=True)
class _Key:
    """What ranks of one job share."""

    master: str | None
    run_id: str | None
    launcher: tuple[str, int | None] | None
    """Host and launcher, where there is no meeting point or it is a loopback address."""


def runs(snapshot: Snapshot, patience: float) -> list[Run]:
    """All jobs in a snapshot, in the order of their ids."""
    members: dict[_Key, list[Placed]] = {}
    launchers: dict[_Key, list[Placed]] = {}
    zombies: list[Placed] = []
    for host in snapshot.hosts:
        by_pid = {process.pid: process for process in host.processes}
        parents: dict[int | None, _Key] = {}
        for process in host.processes:
            if process.role == "rank" and process.identity is not None:
                parents[process.owner] = key = _key(host, process)
                members.setdefault(key, []).append((host, process))
            elif process.role == "rank":
                zombies.append((host, process))
        for process in host.processes:
            if process.role == "launcher":
                key = parents.get(process.pid) or _below(process, by_pid, parents) or _launch_key(host, process)
                launchers.setdefault(key, []).append((host, process))
    for key in list(launchers):
        if key not in members and not any(_is_agent(process) for _, process in launchers[key]):
            del launchers[key]  # srun or mpirun of something else
    _join_waiting_agents(members, launchers)
    _join_strayed_agents(members, launchers)
    found = [
        run
        for key in {**members, **launchers}
        for run in _split(snapshot, key, members.get(key, []), launchers.get(key, []), zombies, patience)
    ]
    return sorted(found, key=lambda run: run.id)


def _is_agent(process: Process) -> bool:
    return process.launch is not None and process.launch.tool in ("torchrun", "accelerate")


def _below(process: Process, by_pid: dict[int, Process], parents: dict[int | None, _Key]) -> _Key | None:
    """The job of a launcher above another launcher (srun above torchrun)."""
    for pid, key in parents.items():
        seen = 0
        while pid is not None and pid in by_pid and seen < 16:
            if by_pid[pid].ppid == process.pid:
                return key
            pid, seen = by_pid[pid].ppid, seen + 1
    return None


def _join_waiting_agents(members: dict[_Key, list[Placed]], launchers: dict[_Key, list[Placed]]) -> None:
    """An agent that still waits for its node belongs to the run whose endpoint it was given; not to the left-overs of an
    earlier one."""
    for key in [k for k in launchers if k not in members]:
        for other in members:
            left_over = all(process.ppid <= 1 for _, process in members[other])
            if key.master is not None and other.master == key.master and not left_over:
                launchers.setdefault(other, []).extend(launchers.pop(key))
                break


def _join_strayed_agents(members: dict[_Key, list[Placed]], launchers: dict[_Key, list[Placed]]) -> None:
    """Agents of several hosts that all wait for others, start the same program and were told different meeting points: one run
    that was launched wrongly (HD406). It keeps the meeting point of node 0."""
    waiting = [
        key for key in launchers if key not in members and all(launch.waits_for_nodes(p) for _, p in launchers[key])
    ]
    by_program: dict[str, list[_Key]] = {}
    for key in waiting:
        by_program.setdefault(launch.program(launchers[key][0][1].argv), []).append(key)
    for program, keys in by_program.items():
        hosts = [host.name for key in keys for host, _ in launchers[key]]
        if not program or len(keys) < 2 or len(set(hosts)) < len(hosts):
            continue
        first, *others = sorted(
            keys, key=lambda key: min(p.launch.node_rank or 0 for _, p in launchers[key] if p.launch)
        )
        for key in others:
            launchers[first] += launchers.pop(key)


def _key(host: Host, process: Process) -> _Key:
    identity = process.identity
    if identity is None:
        return _Key(None, None, (host.name, process.owner))
    if identity.master_address is None:
        return _Key(None, identity.run_id, (host.name, process.owner))
    master = f"{identity.master_address}:{identity.master_port}"
    local = (process.namespaces.get("net", host.name), None) if _is_loopback(identity.master_address) else None
    return _Key(master, identity.run_id, local)


def _launch_key(host: Host, process: Process) -> _Key:
    asked = process.launch or Launch(tool="?")
    endpoint = asked.endpoint
    if endpoint is None:
        return _Key(None, asked.run_id or "none", (host.name, process.pid))
    address = endpoint.rpartition(":")[0] or endpoint
    local = (process.namespaces.get("net", host.name), None) if _is_loopback(address) else None
    return _Key(endpoint, asked.run_id or "none", local)


@lru_cache(4096)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _split(
    snapshot: Snapshot,
    key: _Key,
    members: list[Placed],
    launchers: list[Placed],
    zombies: list[Placed],
    patience: float,
) -> list[Run]:
    """One run, or several where ranks of one number are there more than once (an orphan of an earlier run)."""
    layers: list[dict[int, Placed]] = []
    # Ranks whose launcher is alive first, the youngest first: what is left over is an earlier run.
    for host, process in sorted(members, key=lambda m: (m[1].ppid <= 1, m[1].started_seconds_ago, m[1].pid)):
        assert process.identity is not None  # noqa: S101  (only identified ranks get here)
        for layer in layers:
            if process.identity.rank not in layer and _same_start(layer, process):
                layer[process.identity.rank] = (host, process)
                break
        else:
            layers.append({process.identity.rank: (host, process)})
    if not layers:
        return [_run(snapshot, key, {}, launchers, [], patience, "")]
    return [
        _run(snapshot, key, layer, launchers if not index else [], zombies if not index else [], patience,
             f"#{index + 1}" if index else "")
        for index, layer in enumerate(layers)
    ]  # fmt: skip


def _same_start(layer: dict[int, Placed], process: Process) -> bool:
    """Whether a process fits among the ranks of a layer: an orphan does not mix with a live launcher's ranks, so the first
    speaks for all."""
    _, first = next(iter(layer.values()))
    return (process.ppid <= 1) == (first.ppid <= 1)


def _run(
    snapshot: Snapshot,
    key: _Key,
    members: dict[int, Placed],
    launchers: list[Placed],
    zombies: list[Placed],
    patience: float,
    suffix: str,
) -> Run:
    first = next(iter(members.values()), None)
    world = _world_size(members, launchers)
    if world is not None and not 0 < world <= MAX_RANKS:
        world = None  # a damaged or foreign number, not a run
    hosts = {host.name for host, _ in (*members.values(), *launchers)}
    ranks = _ranks(members, pairs_of(members, key.master))
    parents = {(host.name, p.pid) for host, p in launchers} | {
        (h.name, p.ppid) for h, p in members.values() if p.ppid > 1
    }
    unseen: dict[int, str] = {}
    if world is not None:
        missing = [rank for rank in range(world) if rank not in ranks]
        dead = [(h, p) for h, p in zombies if (h.name, p.ppid) in parents]
        absent.fill_in(
            missing, dead, members, ranks, unseen,
            together=key.launcher is not None and key.master is not None,
            unreadable={host.name: p.unreadable_below for host, p in launchers if p.unreadable_below},
            unreached=snapshot.unreached,
        )  # fmt: skip
    tool = next((p.launch.tool for _, p in launchers if p.launch is not None), None)
    if tool is None and any(_spawned(process) is not None for _, process in launchers):
        tool = "mp.spawn"
    if tool is None and first is not None and first[1].identity is not None:
        source = first[1].identity.source
        tool = source if source in ("mp.spawn", "Open MPI", "Slurm", "PMI") else None
    return Run(
        id=_id(key, first, launchers) + suffix,
        hosts=tuple(host for host in snapshot.hosts if host.name in hosts),
        launchers=tuple(launchers),
        launcher=tool,
        backend=backends.of_run(process for _, process in members.values()),
        world_size=world,
        master=key.master,
        ranks=ranks,
        unseen=unseen,
        patience=patience,
        meeting_host=_meeting_host(snapshot, key.master),
    )


def _meeting_host(snapshot: Snapshot, master: str | None) -> Host | None:
    address = (master or "").rpartition(":")[0]
    return next(
        (h for h in snapshot.hosts if not _is_loopback(address) and interface_with(h, None, address) is not None), None
    )


def _id(key: _Key, first: Placed | None, launchers: list[Placed]) -> str:
    if key.master is not None:
        return f"{key.run_id or 'run'}@{key.master}"
    if key.launcher is not None:
        host, pid = key.launcher
        return f"{host}:{pid if pid is not None else 'none'}"
    return "run"


def _world_size(members: dict[int, Placed], launchers: list[Placed]) -> int | None:
    for _, process in members.values():
        identity = process.identity
        if identity is not None and identity.world_size is not None:
            return identity.world_size
    for _, process in members.values():
        if isinstance(process.interpreter, Interpreter) and process.interpreter.groups:
            return len(process.interpreter.groups[0].ranks)
    for _, process in launchers:
        if (spawned := _spawned(process)) is not None and members:
            return spawned
        launch = process.launch
        if launch is not None and not members:
            nodes, per_node = _nodes(launch), natural(launch.nproc_per_node)
            if nodes is not None and per_node is not None:
                return nodes * per_node
    return len(members) or None


def _nodes(launch: Launch) -> int | None:
    """The number of nodes a launch needs at least (`2`, or `2:4`)."""
    return natural((launch.nnodes or "1").partition(":")[0])


def _spawned(launcher: Process) -> int | None:
    """`nprocs` of torch.multiprocessing's own frame in the parent."""
    if not isinstance(launcher.stack, Stack):
        return None
    for thread in launcher.stack.threads:
        for frame in thread.frames:
            if frame.file.endswith("torch/multiprocessing/spawn.py"):
                for local in frame.locals:
                    if local.name == "nprocs" and (count := natural(local.text)) is not None:
                        return count
    return None


def _ranks(members: dict[int, Placed], connected: Connected) -> dict[int, Rank]:
    helpers: dict[tuple[str, int | None], list[Process]] = {}
    for host in {host.name: host for host, _ in members.values()}.values():
        for process in host.processes:
            if process.role == "helper":
                helpers.setdefault((host.name, process.owner), []).append(process)
    states = {
        number: state_of(process, helpers.get((host.name, process.pid), []), *connected[number])
        for number, (host, process) in members.items()
    }
    own = {number: progress.user_frames(state.thread) for number, state in states.items()}
    loop = progress.common_loop(own.values())
    ranks = {}
    for number, (host, process) in sorted(members.items()):
        state = states[number]
        place, frame = progress.where(state.thread, own[number])
        ranks[number] = Rank(
            rank=number,
            host=host.name,
            process=process,
            local_rank=process.identity.local_rank if process.identity else None,
            label=state.label,
            state=state.state,
            wait=state.wait,
            thread=state.thread,
            where=place,
            frame=frame,
            moving=state.moving,
            counters_moved=state.counters_moved,
            work=state.work,
            cpu_percent=cpu_percent(process),
            silent_seconds=silent_seconds(connected[number][0]),
            loop=progress.loop_view(process, own[number], loop),
            training_share=state.share,
            why=state.why,
            connections=connected[number][0],
        )
    return ranks
