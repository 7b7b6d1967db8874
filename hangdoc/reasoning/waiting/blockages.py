"""Step 5: what blocks a run. Each end of the graph, a sink or a cycle, is one blockage of exactly one kind.

A run in which no rank waits for another, but none makes progress, is at a standstill. The verdict, the culprits and the victims
are derived from the blockages only.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence

from msgspec import structs

from hangdoc.diagnosis import Verdict
from hangdoc.program import around, asks_store
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.evidence.records import backend_names, shortest_timeout
from hangdoc.reasoning.ledger.compare import next_timeout, unfinished_calls
from hangdoc.reasoning.model.blockage import GRAVITY, UNOBSERVED, Blockage
from hangdoc.reasoning.model.holds import (
    LONGEST_DEFAULT,
    RPC_DEFAULT,
    SHORTEST_TIMEOUT,
    Asleep,
    AtFileLock,
    AtLock,
    AtSharedLock,
    BetweenCalls,
    Busy,
    Dead,
    Elsewhere,
    Ends,
    EngineOrphaned,
    EngineStopped,
    ForOthers,
    GetsRequests,
    Hold,
    InFile,
    InStore,
    OnNetwork,
    ReadsPipe,
    Serves,
    Starves,
    Unread,
    Unreadable,
    Unseen,
    WaitsForLoader,
    Works,
)
from hangdoc.reasoning.model.kinds import (
    AgentsWait,
    Cycle,
    Ended,
    Idle,
    LaunchedNotFinished,
    LauncherStopped,
    Rendezvous,
    Spinning,
    Standstill,
)
from hangdoc.reasoning.model.ledger import CLOCK_SECONDS
from hangdoc.reasoning.model.rank import BUSY, Class, Rank, numbers_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.model.waits import End, Waits
from hangdoc.reasoning.ranks import enders, states
from hangdoc.reasoning.ranks.movement import cores_used, kernel_thread
from hangdoc.reasoning.runs import launch, links
from hangdoc.reasoning.waiting import cycles, different_calls
from hangdoc.snapshot import Process, PythonThread, Unavailable
from hangdoc.torch_facts import call_names

_ATTEMPTS = 5
"""A rank that polls seldom needs as many attempts before its wait is old, because between them nothing can move."""
_AS_PEOPLE_WAIT = 21_600.0
"""Six hours. Training runs raise torch's timeouts to an hour or two, for a checkpoint or an evaluation."""
_A_DAY = 86_400.0
"""Seconds for a rank for which no other one waits, and the longest timeout that makes the patience longer."""
_PATIENCES_FOR_KERNELS = 4
_WHILE_SECONDS = 20.0
"""Before a timeout, for a look and what a person or the watch does about it."""
_JUST_NOW = 1.0
"""Seconds. A younger wait is no evidence of a cycle."""
_NOT_THERE = (
    Unseen,
    Works,
    Starves,
    Busy,
    Asleep,
    AtFileLock,
    AtSharedLock,
    Elsewhere,
    OnNetwork,
    Serves,
    GetsRequests,
)
"""What may keep a rank from the rendezvous without being a finding of its own."""


def find_blockages(run: Run, waits: Waits) -> tuple[Blockage, ...]:
    """What blocks a run, the most severe first."""
    idle = is_idle(run)
    at_ends = _join_absent_ranks(run, _find_at_ends(run, waits))
    blockages = [_with_age(run, blockage) for blockage in (*at_ends, *_find_at_launchers(run))]
    blockages.sort(key=_by_gravity)
    if idle:  # if a rank is dead, the living ones poll for it
        living = tuple(alike for alike in run.classes if alike.first.label != "dead")
        blockages = [
            structs.replace(each, waiting=living) if isinstance(each.kind, Dead) else each for each in blockages
        ]
    if any(isinstance(each.kind, Dead) for each in blockages):  # the next request will not be answered
        idle_ones = [each for each in blockages if isinstance(each.kind, Idle)]
        blockages = [_beside_idle(each, idle_ones) for each in blockages if each not in idle_ones]
    kept = _share_out(blockages, quiet=is_quiet(run))
    if idle and not kept:
        kept = [_with_age(run, Blockage(kind=Standstill(), awaited=run.classes, culprits=()))]
    return tuple(kept)


def _beside_idle(blockage: Blockage, idle_ones: Iterable[Blockage]) -> Blockage:
    """The blockage of a dead rank with the idle ranks for which those that wait for it also wait: in the call that hands out the
    next request, they wait for its source."""
    waiting = set(numbers_of(blockage.waiting))
    idle = (each for each in idle_ones if isinstance(each.kind, Idle) and each.kind.sure and waiting)
    found = next((each for each in idle if waiting <= set(numbers_of(each.waiting))), None)
    return structs.replace(blockage, idle=found) if isinstance(blockage.kind, Dead) else blockage


def _by_gravity(blockage: Blockage) -> tuple[bool, int, bool, tuple[int, ...]]:
    """The key by which blockages are sorted, the most severe first. Those of ranks that were not observed come last."""
    return isinstance(blockage.kind, UNOBSERVED), GRAVITY[blockage.ends], not blockage.old, blockage.culprits


def _find_at_ends(run: Run, waits: Waits) -> list[Blockage]:
    """What is at the ends of the graph: a cycle, a call in which no rank is missing, or ranks that do not wait. Of the last,
    those that are blocked alike at one line are one blockage."""
    blockages: list[Blockage] = []
    sinks: dict[Hashable, tuple[Hold, list[End[int]]]] = {}
    blind = {name for name, _ in run.blind_hosts()}
    for end in waits.ends:
        classes, upstream = _classes_at(waits, [end.nodes]), _classes_at(waits, [end.upstream])
        if end.cycle or (classes and classes[0].first.waits):
            same = None if end.cycle else different_calls.find_tensors(run, classes)
            same = same or different_calls.find_on_cards(run, classes)
            same = same or (None if end.cycle else different_calls.classify_same_call(run, classes))
            kind, culprits = same or cycles.classify_cycle(run, waits, classes)
            if isinstance(kind, InStore) and not upstream:
                kind = _find_key_giver(run) or kind
            if isinstance(kind, InStore):  # not a cycle for sure: another process may set the key
                upstream += tuple(alike for alike in classes if not set(alike.ranks) & set(culprits))
                classes = tuple(alike for alike in classes if alike not in upstream)
            blockages.append(Blockage(kind=kind, awaited=classes, culprits=culprits, waiting=upstream))
        else:
            hold = find_hold(classes[0]) if classes else Unseen()
            if isinstance(hold, OnNetwork) and hold.peer is None and classes[0].first.host in blind:
                hold = Unreadable()  # it may wait for requests, as a server does
            if isinstance(hold, Unread) and not _all_others_rest(run, end.nodes, waits):
                hold = Unreadable()  # it may be in a call for which one of the others comes
            still = [alike for alike in upstream if not alike.first.moving]
            if isinstance(hold, Asleep | Elsewhere):
                left = cycles.find_left_loop(run, classes, still, waits, hold.ends)
                hold = left or cycles.find_skipped_call(run, classes, still, waits, hold.ends) or hold
            where = (classes[0].first.state, classes[0].first.where) if classes and hold.PLACED else None
            # Those for which nobody waits are not to blame for the ranks that wait for the others.
            sinks.setdefault((hold.alike, where, bool(end.upstream)), (hold, []))[1].append(end)
    for hold, ends in sinks.values():
        waiting = _classes_at(waits, (end.upstream for end in ends))
        awaited = _classes_at(waits, (end.nodes for end in ends))
        ranks = sorted(rank for end in ends for at in end.nodes for rank in waits.nodes[at].ranks)
        kind = _idle_or(run, hold, awaited, waiting)
        blames = hold.BLAMES_RANKS and not (kind is hold and _all_wait_for_others(run, hold, waiting))
        blockages.append(Blockage(kind=kind, awaited=awaited, culprits=tuple(ranks) if blames else (), waiting=waiting))
    return blockages


def _all_wait_for_others(run: Run, hold: Hold, waiting: Sequence[Class]) -> bool:
    """Whether no rank waits for another one, and what they wait for is known: processes outside of the run keep them waiting."""
    if waiting or not isinstance(hold, ForOthers) or not hold.holders or hold.ends == "by-itself":
        return False
    ranks = {rank.pid for rank in run.ranks.values()}
    return not hold.of_child and not any(holder.pid in ranks for holder in hold.holders)


def _all_others_rest(run: Run, nodes: Collection[int], waits: Waits) -> bool:
    """Whether all ranks but those at some nodes were observed, and are dead, stopped or waiting."""
    own = {number for at in nodes for number in waits.nodes[at].ranks}
    others = [rank for number, rank in run.ranks.items() if number not in own]
    return not run.unseen and all(
        rank.label in ("blocked", "dead") and not rank.moving and not isinstance(rank.hold, Unreadable)
        for rank in others
    )


def _idle_or(run: Run, hold: Hold, awaited: Sequence[Class], waiting: Sequence[Class]) -> Hold:
    """Idle, if the awaited ranks wait for requests, or for what may come from outside, and the others wait for them only in calls
    by which they hand out what comes. In any other call, those are in the middle of a request that the awaited ranks have left,
    unless somebody gave the call more time than any default of torch and nothing shows that it belongs to a request. Who listens
    itself has left none: the call may be the one that each round begins with. Who waits for no request may be stuck in the
    middle of its work, unless the call may take as long as people do."""
    ranks = frozenset(numbers_of(awaited))
    hands_out = all(_gets_work(alike.first, ranks, waiting) for alike in waiting)
    given = min((_find_time(alike.first) for alike in waiting), default=0.0)
    if hold.next_request is None:
        may_come = (hands_out or given >= _AS_PEOPLE_WAIT) and _may_come(hold, awaited, alone=not waiting)
        own_store = isinstance(hold, Asleep) and not waiting and _poll_own_store(run)
        return Idle(receives=str(hold), sure=False, own_store=own_store) if may_come else hold
    sure = hands_out or all(_serves_others(alike.first) for alike in waiting)
    expected = isinstance(hold, Serves) or (
        given > LONGEST_DEFAULT
        and not any(_carries_out_request(alike.first, other.first) for alike in waiting for other in awaited)
    )
    return Idle(receives=hold.next_request, sure=sure) if sure or expected else hold


def _may_come(hold: Hold, awaited: Sequence[Class], *, alone: bool) -> bool:
    """Whether nothing shows that what ranks poll for, or wait for at a server, will not come. A request with a timeout of many
    minutes is none for the next job: who asks for that again and again gives up earlier, or never."""
    processes = [alike.first.process for alike in awaited if alike.first.process is not None]
    match hold:
        case Asleep(polls=True, ends="unknown"):
            # Who shares its memory writes nothing there.
            left_alone = alone and any(each.others_in_memory for each in processes)
            return not left_alone and not any(each.launcher_gone for each in processes)
        case OnNetwork(holders=servers, sends=False, timeout_seconds=limit) if servers:
            asks_again = alone or limit is None or limit <= SHORTEST_TIMEOUT
            return asks_again and all(each.waits_for_events for each in servers)
        case _:
            return False


def _poll_own_store(run: Run) -> bool:
    """Whether the program of each rank only asks a store of the run, of which no process is a client that is no rank and no
    launcher. A thread of a rank, or a client that comes for one key, may still change the answers."""
    members = [(rank.host, rank.pid) for rank in run.living] + [(host.name, each.pid) for host, each in run.launchers]
    return (
        not run.unseen
        and bool(run.living)
        and all(map(_polls_store, run.living))
        and bool(links.store_ports(run.hosts, members))
        and not links.find_store_guests(run.hosts, members)
    )


def _polls_store(rank: Rank) -> bool:
    """Whether a rank polls in a loop that only a store can end, and asked one just now."""
    hold, asked = rank.hold, rank.store_silent_seconds
    loops = around(rank.frame) if rank.frame is not None else []
    if not isinstance(hold, Asleep) or not hold.polls or asked is None or not loops or not asks_store(loops[-1]):
        return False
    return asked <= max(_JUST_NOW, hold.period or 0.0)


def _find_key_giver(run: Run) -> Idle | None:
    """Idle, if all ranks wait for keys, and a process that is no rank serves their store or is a client of it; None if there is
    none."""
    in_store = (alike.first.wait is not None and alike.first.wait.kind == "store" for alike in run.classes)
    if run.unseen or not all(in_store):
        return None
    ranks = [(rank.host, rank.process, rank.thread) for rank in run.ranks.values() if rank.process is not None]
    awaited = {
        (host, process.pid, file.inode)
        for host, process, thread in ranks
        if (kernel := kernel_thread(process, thread)) is not None
        for file in kernel.files
        if file.kind == "socket" and file.inode is not None
    }
    if servers := links.find_foreign_servers(run.hosts, awaited):
        return Idle(receives=f"waiting for a key that the server of their store at {servers[0]} may set", sure=False)
    members = [(host, process.pid) for host, process, _ in ranks]
    members += [(host.name, process.pid) for host, process in run.launchers]
    if guests := links.find_store_guests(run.hosts, members):
        return Idle(receives=f"waiting for a key that the client of their store at {guests[0]} may set", sure=False)
    return None


def _find_time(rank: Rank) -> float:
    """Seconds that the call of a rank may take; 0 for one without a process."""
    return _find_timeout(rank.process, rank.thread) if rank.process is not None else 0.0


def _carries_out_request(rank: Rank, receiver: Rank) -> bool:
    """Whether a rank has passed the line at which another one waits for its next request, in the same loop: each of them gets
    requests there, and this one has got one. False if a condition is around that line, there or in the functions that were called
    from it: the rank may not receive there."""
    for depth, at in enumerate(receiver.own):
        conditions = {test for inner in receiver.own[: depth + 1] for test in inner.conditions}
        if any(
            frame.file == at.file
            and frame.function == at.function
            and frame.line > at.line
            and conditions <= set(frame.conditions)
            and any(loop in around(frame) for loop in around(at))
            for frame in rank.own
        ):
            return True
    return False


def _serves_others(rank: Rank) -> bool:
    """Whether a rank is in `rpc.shutdown`, where it carries out calls until no rank has more."""
    return rank.wait is not None and rank.wait.operation.op == call_names.RPC_SHUTDOWN


def _gets_work(rank: Rank, givers: Collection[int], waiting: Iterable[Class]) -> bool:
    """Whether a rank waits in a call by which one of `givers`, or a rank that waits for them itself, hands something out: also
    for a key that another rank has to set."""
    wait = rank.wait
    if wait is None:
        return False
    if wait.kind == "store":
        return True
    if (operation := wait.operation).op in call_names.RECEIVES:
        return operation.peer is None or operation.peer in {*givers, *numbers_of(waiting)}
    if operation.op not in call_names.DISTRIBUTES:
        return False
    return wait.root_rank is None or wait.root_rank in givers


def _classes_at(waits: Waits, node_sets: Iterable[frozenset[int]]) -> tuple[Class, ...]:
    """The classes at some nodes of the graph."""
    return tuple(alike for at in sorted(frozenset().union(*node_sets)) for alike in waits.nodes[at].classes)


def find_hold(alike: Class) -> Hold:
    """What blocks a class that does not wait for another rank."""
    rank = alike.first
    if (announced := states.find_announced(rank)) is not None:
        return announced
    if rank.label == "dead":
        return rank.hold or Dead(traced=rank.process is not None)
    if rank.label is None:
        return rank.hold or Unreadable()
    return rank.hold or (states.find_work(rank) if rank.label == "computing" else Elsewhere())


def _join_absent_ranks(run: Run, blockages: list[Blockage]) -> list[Blockage]:
    """If ranks wait in a rendezvous, all absent ranks are one blockage, whatever they are doing."""
    arrived = tuple(alike for alike in run.waiting if alike.first.in_rendezvous)
    absent = [
        blockage
        for blockage in blockages
        if isinstance(blockage.kind, _NOT_THERE) and any(alike.first.in_rendezvous for alike in blockage.waiting)
    ]
    if not arrived or not absent:
        return blockages
    awaited = tuple(alike for blockage in absent for alike in blockage.awaited)
    processes = tuple(alike.first.process for alike in arrived if alike.first.process is not None)
    ends: Ends = "by-itself" if any(alike.first.moving for alike in awaited) else _end_of_rendezvous(processes)
    rendezvous = Blockage(
        kind=Rendezvous(arrived=arrived, ends=ends),
        awaited=awaited,
        culprits=tuple(sorted(rank for blockage in absent for rank in blockage.culprits)),
        waiting=tuple({alike.ranks: alike for blockage in absent for alike in blockage.waiting}.values()),
    )
    return [blockage for blockage in blockages if blockage not in absent] + [rendezvous]


def _end_of_rendezvous(arrived: Iterable[Process]) -> Ends:
    """Whether a rendezvous ends by itself: another process of the job is at work, and may start what is missing."""
    return "by-itself" if any(process.others_at_work for process in arrived) else "unknown"


def _find_at_launchers(run: Run) -> list[Blockage]:
    """Launchers that have not started any rank yet, or whose ranks have all ended."""
    dead = tuple(number for number, rank in sorted(run.ranks.items()) if rank.label == "dead")
    if len(dead) < len(run.ranks) or not run.launchers:
        return []
    launchers = [process for _, process in run.launchers]
    kinds: list[tuple[Hold, tuple[int, ...]]] = []
    agents = tuple((process, frame) for process in launchers if (frame := launch.in_rendezvous(process)) is not None)
    if agents and not run.ranks:
        waiting = [process for process, _ in agents]
        alone = all(map(launch.meets_alone, waiting))
        ends: Ends = "never" if alone else _end_of_rendezvous(waiting)
        kinds.append((AgentsWait(agents=agents, ends=ends), launch.absent_ranks(waiting)))
    stops = ((process, stopped_by(process)) for process in launchers)
    kinds += [
        (LauncherStopped(launcher=launcher, stop=stop, ended=dead), ()) for launcher, stop in stops if stop is not None
    ]
    if dead and not kinds:
        failed = tuple(n for n in dead if (process := run.ranks[n].process) is None or process.exit_code != 0)
        monitored = any(process.launch is not None for process in launchers)
        ends = "by-itself" if monitored or not failed else "never"
        kinds.append((Ended(launcher=launchers[0], ranks=dead, ends=ends), failed))
    return [Blockage(kind=kind, awaited=(), culprits=culprits) for kind, culprits in kinds]


def _with_age(run: Run, blockage: Blockage) -> Blockage:
    """Age: at most the time since the start of the awaited rank, since the last byte from an awaited peer, and since what the
    awaited rank waits for came the last time."""
    kind = blockage.kind
    started = (alike.first.process.started_seconds_ago for alike in blockage.awaited if alike.first.process is not None)
    renewed = [
        enders.renewed_seconds_ago(alike.first.process, alike.first.thread, run.helpers(alike.first))
        for alike in blockage.awaited
        if not alike.first.waits and alike.first.process is not None
    ]
    renewed.append(kind.silent_seconds if isinstance(kind, OnNetwork) else None)
    bounds = [run.age_seconds, *started, *renewed]
    if isinstance(kind, Spinning):
        bounds = [None]  # the records of others do not tell since when it has been in its call
    if isinstance(kind, AgentsWait):
        bounds = [process.started_seconds_ago for process, _ in kind.agents]
    age = min(bound for bound in bounds if bound is not None) if bounds[0] is not None else None
    patience, given = _patience(run, blockage)
    old_from = _limit_by_timeout(run, max(patience, _time_for_attempts(blockage), _timeout_of_dumps(run, blockage)))
    return structs.replace(
        blockage,
        age_seconds=age,
        renewed=age is not None and age in renewed and age < (run.age_seconds or 0.0) - _JUST_NOW,
        old_from_seconds=old_from,
        given_seconds=given if old_from == patience else None,
        after_the_fact=run.after_the_fact,
        under_way=(age is not None and age < _JUST_NOW)
        or (
            not run.after_the_fact
            and any(_has_data_in_flight(run.ranks[number]) for number in numbers_of(blockage.awaited))
        ),
    )


def _patience(run: Run, blockage: Blockage) -> tuple[float, float | None]:
    """The patience for a blockage, and the timeout that makes it longer, if one does. It is longer for a call that all ranks have
    launched, because kernels that were queued before it may take a while; not if the meters of their cards show that these wait.
    And it grows with the time that somebody gave the ranks that wait: the patience of a user is meant for torch's default, and a
    minute says nothing about a call that may take a day."""
    kind = blockage.kind
    if isinstance(kind, LaunchedNotFinished) and not kind.cards_wait:
        return run.patience * _PATIENCES_FOR_KERNELS, None
    # Of what happens inside a process, a longer timeout tells nothing.
    given = _seconds_given(blockage) if blockage.waiting and not isinstance(kind, AtLock) else LONGEST_DEFAULT
    by_rpc = RPC_DEFAULT - _A_DAY < given <= RPC_DEFAULT  # of a call that is under way, some of it may have passed
    if given <= LONGEST_DEFAULT or by_rpc:
        return run.patience, None
    return run.patience * min(given, _A_DAY) / LONGEST_DEFAULT, given


def _timeout_of_dumps(run: Run, blockage: Blockage) -> float:
    """How long ranks wait until torch ends the run, if only its dumps were read: they show one moment, so that nothing less shows
    that a call did not finish later. 0 where the dumps show a rank that did not come."""
    if not run.after_the_fact or isinstance(blockage.kind, BetweenCalls):
        return 0.0
    timeouts = (call.timeout_seconds for call in unfinished_calls(run))
    return min((seconds for seconds in timeouts if seconds), default=0.0) - CLOCK_SECONDS


def _limit_by_timeout(run: Run, seconds: float) -> float:
    """The age from which a wait is old: `seconds`, or less if torch ends the run before that. Then nobody can look any more, and
    a rank that has not come is too late."""
    if run.after_the_fact:
        return seconds
    limit = next_timeout(unfinished_calls(run))
    if limit is None:
        return seconds
    return min(seconds, _shortly_before(limit.timeout_seconds))


def _shortly_before(timeout: float) -> float:
    """The age of a wait that is about to give up. An attempt that a program repeats never gets older than its timeout."""
    return max(timeout - _WHILE_SECONDS, timeout / 2)


def _time_for_attempts(blockage: Blockage) -> float:
    """How long the awaited ranks need for a few attempts, if the next one comes before the ranks that wait give up. A process
    of the job that only may help has two turns, since most of those that sleep have nothing to do with the wait. A request has
    the time that it was given: its server may be far away, or do nothing between two checks. In a cycle, no attempt helps."""
    if isinstance(blockage.kind, Cycle):
        return 0.0
    limit = _seconds_given(blockage)
    holds = [hold for alike in blockage.awaited if (hold := alike.first.hold) is not None]
    own = [_ATTEMPTS * hold.period for hold in holds if hold.period is not None and hold.period <= limit]
    others = [enders.TURNS_OF_OTHERS * hold.period_of_others for hold in holds if hold.period_of_others is not None]
    timeouts = (hold.timeout_seconds for hold in holds if isinstance(hold, OnNetwork))
    requests = [_shortly_before(seconds) for seconds in timeouts if seconds is not None]
    return min(max(own + others + requests, default=0.0), limit)


def _seconds_given(blockage: Blockage) -> float:
    """How long the ranks that wait give the awaited ones. Longer than torch's shortest default only if somebody chose a timeout
    above all defaults, as for a service that trains once a night, or if no rank waits."""
    firsts = [alike.first for alike in blockage.waiting]
    timeouts = (_find_timeout(rank.process, rank.thread) for rank in firsts if rank.process is not None)
    chosen = min(timeouts, default=_A_DAY)
    return chosen if chosen > LONGEST_DEFAULT else SHORTEST_TIMEOUT


def _find_timeout(process: Process, thread: PythonThread | None) -> float:
    """Seconds after which a rank that waits in a call gives up: that of its thread, if it has one; or else by torch's record."""
    kernel = kernel_thread(process, thread)
    return (kernel.timeout_seconds if kernel is not None else None) or shortest_timeout(process)


def _has_data_in_flight(rank: Rank) -> bool:
    """Whether a connection to another rank holds bytes that are not sent, not acknowledged or not read. With RPC, bytes may be
    in shared memory, which cannot be observed. A call of NCCL is under way until it finishes: it returned at once, so the thread
    may wait for kernels of its own, and make the call for which the others wait after them. Only its age tells. The same is true
    of a call that only a record shows."""
    if rank.wait is not None and (rank.wait.operation.backend == "nccl" or (rank.is_unread and not rank.wait.sure)):
        return True
    return rank.uses_rpc or any(
        c.state == "ESTABLISHED" and (c.send_queue_bytes or c.receive_queue_bytes or c.unacked)
        for c in rank.connections
    )


def _share_out(blockages: Iterable[Blockage], *, quiet: bool) -> list[Blockage]:
    """Give each waiting class to the first blockage that it reaches, and drop blockages that keep no rank waiting, unless they
    can never end, their ranks could not be observed, or they explain why a quiet run makes no progress."""
    taken: set[tuple[int, ...]] = set()
    kept = []
    for blockage in blockages:
        still = [alike for alike in blockage.waiting if not alike.first.moving]
        waiting = tuple(alike for alike in still if alike.ranks not in taken)
        taken |= {alike.ranks for alike in waiting}
        kind = blockage.kind
        if (
            waiting
            or any(alike.first.waits and not alike.first.moving for alike in blockage.awaited)
            or (kind.ends == "never" and not isinstance(kind, Dead | BetweenCalls))
            or (isinstance(kind, UNOBSERVED) and still)
            or isinstance(kind, AgentsWait | LauncherStopped | Ended)
            or (quiet and explains_standstill(kind))
        ):
            kept.append(structs.replace(blockage, waiting=waiting))
    return kept


def conclude(run: Run) -> Verdict:
    """The verdict that follows from the blockages of a run."""
    if any(blockage.severity == "error" for blockage in run.blockages):
        return "hung"
    if run.after_the_fact:  # dumps do not show what came next
        return "unknown"
    if not run.ranks:  # only launchers: no rank has started yet, or none is left
        living = [(host, each) for host, each in run.launchers if each.state not in "ZX"]
        unread = (each.unreadable_below or host.unread or isinstance(each.stack, Unavailable) for host, each in living)
        return "waiting" if living and not any(unread) else "unknown"
    holding = [blockage for blockage in run.blockages if blockage.victims or not isinstance(blockage.kind, UNOBSERVED)]
    if holding:
        return "unknown" if any(map(_may_be_hung, holding)) else "waiting"
    if any(rank.label is None or isinstance(rank.hold, Unreadable) for rank in run.ranks.values()):
        return "unknown"
    still = any(rank.label != "computing" and not rank.moving for rank in run.ranks.values())
    return "waiting" if still else "healthy"


def _may_be_hung(blockage: Blockage) -> bool:
    """Whether the evidence leaves it open: the awaited rank was not observed, or the age is unknown."""
    return isinstance(blockage.kind, UNOBSERVED) or (blockage.ends == "unknown" and blockage.age_seconds is None)


_IN_OWN_WORK = (AtLock, AtFileLock, InFile, WaitsForLoader)
"""What only blocks a rank that has something to do. A worker without a job reads from a queue's pipe, or waits for its lock."""
_TELLING = (
    *_IN_OWN_WORK,
    AtSharedLock,
    ReadsPipe,
    OnNetwork,
    Serves,
    Idle,
    EngineOrphaned,
    EngineStopped,
    GetsRequests,
)


def is_quiet(run: Run) -> bool:
    """Whether no rank waits for another, each living rank is blocked on its own (by a file, a lock, a worker), and none of its
    threads works. False if a group uses NCCL, because the host cannot see the work of a GPU."""
    hidden = "nccl" in backend_names(run.backend)
    return not run.waiting and not hidden and bool(run.living) and all(map(_is_blocked, run.living))


def is_idle(run: Run) -> bool:
    """Whether a run is quiet, and none of its waits ends by itself."""
    return is_quiet(run) and not any(_ends_by_itself(rank.hold) and rank.cpu_percent is not None for rank in run.living)


_NAP_SECONDS = 1.0
"""A shorter sleep is part of slow work: the rank goes on at once."""


def explains_standstill(hold: Hold) -> bool:
    """Whether it explains why a rank of a quiet run makes no progress."""
    nap = isinstance(hold, Asleep) and hold.seconds is not None and hold.seconds < _NAP_SECONDS and not hold.polls
    return isinstance(hold, _TELLING) or (isinstance(hold, Asleep | Elsewhere) and hold.ends == "by-itself" and not nap)


def _is_blocked(rank: Rank) -> bool:
    return (
        rank.label == "blocked"
        and not rank.moving
        and not isinstance(rank.hold, Unreadable)
        and rank.state not in ("waiting-input", "stopped")
        and (rank.process is None or cores_used(rank.process, transport=False) < BUSY)
    )


def _ends_by_itself(hold: Hold | None) -> bool:
    if isinstance(hold, Asleep) and not hold.polls:
        return True
    return hold is not None and hold.ends == "by-itself" and not isinstance(hold, Serves)


def is_seen(run: Run) -> bool:
    """Whether the CPU clocks of all ranks of an idle run were read, so that it is known to be idle. Ranks without a group may
    wait for a GPU or for a job, unless it is known that something blocks their own work."""
    return all(
        rank.cpu_percent is not None
        and (run.backend == "gloo" or rank.uses_rpc or (run.backend is None and isinstance(rank.hold, _IN_OWN_WORK)))
        for rank in run.living
    )
