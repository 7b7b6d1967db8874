"""From the processes of a run to its ranks: which are missing, and what each of them is doing."""

from collections import Counter
from collections.abc import Collection
from itertools import chain
from typing import Any

from msgspec import structs

from hangdoc.parse import natural
from hangdoc.reasoning.build.absent import add_missing_ranks, leave_out_bystanders
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.observed import interfaces
from hangdoc.reasoning.evidence.records import backend_of_run, label_group, last_call
from hangdoc.reasoning.evidence.stack import frames_at, meeting_call_of, reading, where
from hangdoc.reasoning.ledger.from_records import ledger_of
from hangdoc.reasoning.ledger.nccl_counts import waiting_for_launches
from hangdoc.reasoning.model.holds import AtSharedLock
from hangdoc.reasoning.model.rank import LoopView, Rank, State
from hangdoc.reasoning.model.run import Placed, Run
from hangdoc.reasoning.ranks.classes import classes_of
from hangdoc.reasoning.ranks.counters import find_common_loop, is_in_endless_loop, loop_view
from hangdoc.reasoning.ranks.enders import find_engine
from hangdoc.reasoning.ranks.from_dump import last_place, state_at_dump, training_at_dump
from hangdoc.reasoning.ranks.movement import cpu_percent
from hangdoc.reasoning.ranks.network_waits import list_unanswered
from hangdoc.reasoning.ranks.recorded import find_tensor
from hangdoc.reasoning.ranks.sleeps import HostClocks
from hangdoc.reasoning.ranks.states import Training, find_training, state_of
from hangdoc.reasoning.ranks.waiter import Engine, Surroundings
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.runs.gather import gather_runs
from hangdoc.reasoning.runs.links import (
    Connected,
    Links,
    accepted_from_outside,
    index_of,
    links_of,
    silent_seconds,
    store_waits,
)
from hangdoc.reasoning.runs.processes import Gathered, HelperIndex, Helpers, JobId, ids_of, name_of
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Frame, Host, Process, Snapshot
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.frameworks import RAYLET, SERVERS


def build_runs(snapshot: Snapshot, patience: float) -> list[Run]:
    """All runs in a snapshot, in the order of their names. Of runs that are called alike, left-overs come last."""
    parts = sorted(gather_runs(snapshot), key=lambda part: (name_of(part), part.left_over, _lost_its_launcher(part)))
    hosts = _Hosts(snapshot)
    return [_run(snapshot, hosts, part, job_id, patience) for part, job_id in zip(parts, ids_of(parts), strict=True)]


class _Hosts:
    """The hosts of a snapshot, found in constant time: one snapshot may have many runs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.by_name = {host.name: host for host in snapshot.hosts}
        self.helpers = HelperIndex()
        self._position = {host.name: at for at, host in enumerate(snapshot.hosts)}
        self._with_address: dict[str, Host] = {}
        for host in snapshot.hosts:
            for interface in interfaces(host, None):
                for address in interface.addresses:
                    self._with_address.setdefault(address, host)

    def named(self, names: Collection[str]) -> tuple[Host, ...]:
        """In the order of the snapshot."""
        return tuple(self.by_name[name] for name in sorted(names, key=self._position.__getitem__))

    def at(self, master: str | None) -> Host | None:
        """The host of a rendezvous endpoint."""
        address = (master or "").rpartition(":")[0]
        return self._with_address.get(address) if not is_loopback(address) else None


def _lost_its_launcher(part: Gathered) -> bool:
    return bool(part.members) and all(process.launcher_gone for _, process in part.members)


def _run(snapshot: Snapshot, hosts: _Hosts, run: Gathered, job_id: JobId, patience: float) -> Run:
    members = run.by_rank
    world = _world_size(run)
    if world is not None and not 0 < world <= launch.MAX_RANKS:
        world = None  # a damaged or foreign number, not a run
    own = {(host.name, process.pid) for host, process in members.values()}
    below = hosts.helpers.on({host.name: host for host, _ in members.values()}.values(), own)
    engines = _find_engines(run)
    connected = links_of(members, run.master, below)
    ranks = _ranks(members, below, connected, engines)
    unseen = add_missing_ranks(run, world or 0, ranks, snapshot.unreached)
    leave_out_bystanders(run, ranks)
    accepted = {
        number: accepted_from_outside(process.pid, connected[number], all_seen=not unseen)
        for number, (_, process) in members.items()
    }
    return Run(
        id=job_id.shown,
        full_id=job_id.full,
        name=job_id.name,
        hosts=hosts.named({host.name for host, _ in run.processes}),
        launchers=tuple(run.launchers),
        duplicates=tuple(run.duplicates),
        launcher=_launcher(run),
        backend=backend_of_run(process for _, process in run.members),
        world_size=world,
        master=run.master,
        ranks=ranks,
        unseen=unseen,
        patience=patience,
        meeting_host=hosts.at(run.master),
        below=below,
        ledger=ledger_of(ranks.values(), hosts.by_name),
        store_waits=store_waits(run, members),
        classes=classes_of(ranks.values()),
        served=frozenset(
            n
            for n, (host, process) in members.items()
            if accepted[n] or (host.name, process.owner) in engines or _serves(process)
        ),
        request_seconds={n: max(ages) for n, which in accepted.items() if (ages := list_unanswered(which))},
    )


def _launcher(run: Gathered) -> str | None:
    """What started its ranks."""
    tool = next((process.launch.tool for _, process in run.launchers if process.launch is not None), None)
    if tool is None and any(_spawned(process) is not None for _, process in run.launchers):
        return "mp.spawn"
    source = next((identity.source for identity in run.identities), None)
    # Ray Train's workers set their ranks in `os.environ`; actors of other programs have them in their process groups only.
    from_memory = source in ("os.environ", "process group")
    if tool is None and from_memory and all(RAYLET in observed.environment(process) for _, process in run.members):
        return "Ray"
    return tool or (source if source in ("mp.spawn", "Open MPI", "Slurm", "PMI") else None)


def _world_size(run: Gathered) -> int | None:
    # What torch says counts more than the environment: a script may pass another number to init_process_group.
    processes = [process for _, process in run.members]
    groups = [group for process in processes for group in observed.groups(process)]
    listed = (len(group.ranks) for group in groups if group.default and group.ranks)
    calls = () if groups else filter(None, map(meeting_call_of, processes))
    passed = (call.world_size for call in calls if call.world_size)
    published = (identity.world_size for identity in run.identities if identity.world_size is not None)
    if (size := next(chain(listed, passed, published), None)) is not None:
        return size
    for _, process in run.launchers:
        if run.members:
            if (spawned := _spawned(process)) is not None:
                return spawned
        elif (line := process.launch) is not None:
            nodes = launch.nodes(process) if line.nnodes else 1
            per_node = natural(line.nproc_per_node)
            if nodes is not None and per_node is not None:
                return nodes * per_node
    return len(run.numbers) or None


def _spawned(launcher: Process) -> int | None:
    """`nprocs` of torch.multiprocessing's own frame in the parent."""
    for frame in observed.frames(launcher):
        for local in frame.locals if frame.file.endswith(file_names.SPAWN) else ():
            if local.name == "nprocs" and (count := natural(local.text)) is not None:
                return count
    return None


def _find_engines(run: Gathered) -> dict[tuple[str, int | None], Engine]:
    """The processes that started ranks and give them requests, by host and pid. Where one has the run's store, it listens for its
    ranks only there."""
    stores = run.stores | {natural((run.master or "").rpartition(":")[2])}
    engines: dict[tuple[str, int | None], Engine] = {}
    ranks: dict[str, set[int]] = {}
    for host, process in run.members:
        ranks.setdefault(host.name, set()).add(process.pid)
    for host, process in run.launchers:
        if process.launch is None:
            others = (c for c in index_of(host).of([process.pid]) if c.local_port not in stores)
            if (engine := find_engine(process, others, ranks.get(host.name, frozenset()))) is not None:
                engines[host.name, process.pid] = engine
    return engines


def _serves(process: Process) -> bool:
    """Whether the stacks of a rank show that it is a server itself."""
    return any(frame.file.endswith(SERVERS) for frame in observed.frames(process))


def _ranks(
    members: dict[int, Placed], below: Helpers, connected: Connected, engines: dict[tuple[str, int | None], Engine]
) -> dict[int, Rank]:
    firsts = {(host.name, process.pid) for host, process in members.values() if process.like is None}
    whole = {at: place for at, place in members.items() if (place[0].name, place[1].like) not in firsts}
    trains = {
        number: training_at_dump(process) if host.dumps is not None else find_training(process)
        for number, (host, process) in whole.items()
    }
    alike = Counter((host.name, process.like) for host, process in members.values() if process.like is not None)
    votes = (
        (
            process,
            trains[at].outside_models,
            _is_in_request(trains[at], engines.get((host.name, process.owner))),
            1 + alike[host.name, process.pid],
        )
        for at, (host, process) in whole.items()
    )
    loop, of_batches = find_common_loop(votes)
    ranks: dict[int, Rank] = {}
    for number in sorted(whole):
        host, process = whole[number]
        links = connected[number]
        if host.dumps is not None:
            state = state_at_dump(process, trains[number], dated=host.wall_us is not None)
        else:
            helpers, engine = below.get((host.name, process.pid), ()), engines.get((host.name, process.owner))
            clocks = HostClocks(host.monotonic_us, host.wall_us)
            around = Surroundings(helpers, links.ranks, links.others, links.stores, engine, clocks)
            state = state_of(process, trains[number], around)
        view = loop_view(process, trains[number].own, loop, of_batches=of_batches)
        ranks[number] = _rank(number, host, process, trains[number], state, view, links)
    ranks = waiting_for_launches(ranks)
    whole_ranks = ranks if len(whole) == len(members) else _with_alike(ranks, members, connected)
    return _without_waiting_holders(_with_workers(whole_ranks))


def _is_in_request(trains: Training, engine: Engine | None) -> bool:
    """Whether a rank executes one request after another: in a framework's loop, or in an own one for the process that started it
    and that takes requests."""
    if trains.read is not None and trains.read.in_request:
        return True
    return engine is not None and is_in_endless_loop(trains.own)


def _with_alike(whole: dict[int, Rank], members: dict[int, Placed], connected: Connected) -> dict[int, Rank]:
    """All ranks, in order. For one that is like another one of its host, the same is concluded; its stack has no variables."""
    by_process = {(rank.host, rank.pid): rank for rank in whole.values()}
    patterns: dict[tuple[str, int | None], Rank] = {}
    ranks = {}
    for number in sorted(members):
        if (rank := whole.get(number)) is None:
            host, process = members[number]
            first = host.name, process.like
            pattern = patterns.get(first) or patterns.setdefault(first, _bare(by_process[first], process))
            rank = structs.replace(
                pattern,
                rank=number,
                like=by_process[first].rank,
                idle_seconds=observed.threads(process)[0].idle_seconds,  # of the training thread (Alike)
                **_own_values(process, connected[number]),
            )
        ranks[number] = rank
    return ranks


def _own_values(process: Process, links: Links) -> dict[str, Any]:
    """What a rank has of its own, also if it is like another one."""
    return {
        "process": process,
        "local_rank": process.identity.local_rank if process.identity else None,
        "cpu_percent": cpu_percent(process),
        # NCCL's processes keep in touch on connections that carry no data of a collective.
        "silent_seconds": silent_seconds(links.ranks) if not observed.uses_nccl(process) else None,
        "store_silent_seconds": silent_seconds(links.stores),
        "connections": links.ranks,
    }


def _bare(first: Rank, alike: Process) -> Rank:
    """A rank with the stack of one that is like it."""
    trains = find_training(alike)
    _, frame = where(trains.thread, trains.read, trains.own)
    return structs.replace(first, thread=trains.thread, own=trains.own, program=_program(trains), frame=frame)


def _program(trains: Training) -> tuple[Frame, ...]:
    thread, read, own = trains.thread, trains.read, trains.own
    return own if thread is None or read is None or read.program == read.own else frames_at(thread.frames, read.program)


def _with_workers(ranks: dict[int, Rank]) -> dict[int, Rank]:
    """Ranks whose waits for workers of torch.distributed.rpc name the ranks of those workers. A worker that itself waits answers
    from other threads. If none of them handles a request, it waits for the requests of other ranks."""
    workers = {name: rank for rank in ranks.values() if rank.process and (name := observed.rpc_name(rank.process))}
    named = dict(ranks)
    for number, rank in ranks.items():
        wait = rank.wait
        worker = workers.get(wait.asked) if wait is not None and wait.asked is not None else None
        if wait is not None and worker is not None:
            threads = observed.python_threads(worker.process) if worker.process is not None else ()
            if worker.waits and not any(reading(thread).handles_rpc for thread in threads):
                wait = structs.replace(wait, answered_by=worker.rank)
            else:
                wait = wait.with_details(peer=worker.rank)
            named[number] = structs.replace(rank, wait=wait)
    return named


def _without_waiting_holders(ranks: dict[int, Rank]) -> dict[int, Rank]:
    """Ranks at a full queue without the other ranks at it among those that can take from it: these wait for room themselves."""
    waiting = {
        (rank.host, rank.pid, rank.hold.file)
        for rank in ranks.values()
        if isinstance(rank.hold, AtSharedLock) and rank.hold.in_queue
    }
    others = dict(ranks)
    for number, rank in ranks.items():
        if isinstance(rank.hold, AtSharedLock) and rank.hold.in_queue and rank.hold.holders:
            here, file = rank.host, rank.hold.file
            able = tuple(holder for holder in rank.hold.holders if (here, holder.pid, file) not in waiting)
            hold = structs.replace(rank.hold, holders=able)
            why = str(hold) if rank.why == str(rank.hold) else rank.why
            others[number] = structs.replace(rank, hold=hold, why=why)
    return others


def _with_group_label(state: State, process: Process) -> State:
    """A state whose operation has what people call its group."""
    waits = {"wait": state.wait, "passing": state.passing}
    named = {
        what: wait.with_details(group_label=label)
        for what, wait in waits.items()
        if wait is not None and (label := label_group(process, wait.operation.group)) is not None
    }
    return structs.replace(state, **named) if named else state


def _rank(
    number: int,
    host: Host,
    process: Process,
    trains: Training,
    state: State,
    loop: LoopView | None,
    links: Links,
) -> Rank:
    thread, read, own = trains.thread, trains.read, trains.own
    place, frame = where(thread, read, own)
    if (
        thread is None
        and host.dumps is None
        and state.label in ("computing", "blocked")
        and (call := last_call(process, host.wall_us)) is not None
    ):
        place = call.where
    elif thread is None and host.dumps is not None:
        place = last_place(process)
    frames = () if thread is None else thread.frames
    return Rank(
        **structs.asdict(_with_group_label(state, process)),
        rank=number,
        host=host.name,
        thread=thread,
        own=own,
        program=_program(trains),
        where=place,
        frame=frame,
        idle_seconds=trains.kernel.idle_seconds if trains.kernel is not None else None,
        loop=loop,
        passed=find_tensor(process, frames, read, state.wait) if read is not None else None,
        **_own_values(process, links),
    )
