"""Step 4: which rank waits for which. The nodes are calls in which ranks can meet, and classes of ranks that do not wait."""

from collections.abc import Hashable, Iterable

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.records import backend_names, unfinished_transfers
from hangdoc.reasoning.ledger.compare import wait_seconds
from hangdoc.reasoning.model.holds import AtFileLock, AtSharedLock, OnNetwork, WaitsForLoader
from hangdoc.reasoning.model.rank import Class, Rank, Wait, numbers_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.model.waits import Node, Waits
from hangdoc.reasoning.ranks.movement import kernel_thread
from hangdoc.reasoning.ranks.network_waits import may_serve_elsewhere
from hangdoc.reasoning.runs import links
from hangdoc.reasoning.waiting import graph
from hangdoc.snapshot import Connection, Unavailable
from hangdoc.torch_facts import call_names


def draw_waits(run: Run) -> Waits:
    """The graph of a run."""
    unseen = frozenset(run.unseen)
    everyone = unseen.union(*(alike.ranks for alike in run.classes))
    together: dict[Hashable, list[Class]] = {}
    for number, alike in enumerate(run.classes):
        wait = alike.first.wait
        together.setdefault(number if wait is None else _meeting_point(wait, alike.ranks), []).append(alike)
    nodes = [_make_node(run, tuple(group), everyone) for group in together.values()]
    if unseen:
        nodes.append(Node((), unseen, frozenset()))
    position = {rank: at for at, node in enumerate(nodes) for rank in node.ranks}
    edges = {at: {position[rank] for rank in node.awaits if rank in position} for at, node in enumerate(nodes)}
    return Waits(tuple(nodes), tuple(graph.find_ends(edges)), position)


def _meeting_point(wait: Wait, ranks: tuple[int, ...]) -> Hashable:
    if wait.kind == "p2p":
        peer = wait.operation.peer
        return ("p2p", wait.operation.op, peer, ranks if peer is not None else None)
    return ("rendezvous",) if wait.kind == "rendezvous" else (wait.kind, *wait.point)


def _make_node(run: Run, classes: tuple[Class, ...], everyone: frozenset[int]) -> Node:
    here = frozenset(rank for alike in classes for rank in alike.ranks)
    rank = classes[0].first
    if rank.wait is None:
        # Ranks at one line may wait for different peers.
        enders = [] if isinstance(rank.hold, OnNetwork) and len(here) > 1 else find_enders(run, rank)
        return Node(classes, here, frozenset(enders) - here)
    if rank.wait.kind == "p2p":
        peer = rank.wait.operation.peer
        if peer is not None and peer != rank.rank:
            return Node(classes, here, frozenset({peer}))
        # Of several ranks with unknown peers, each may wait for another of them.
        others = everyone if len(here) > 1 else everyone - here
        return Node(classes, here, others - {rank.wait.answered_by} or others)
    return Node(classes, here, _find_members(run, rank, rank.wait, everyone) - here)


def _find_members(run: Run, rank: Rank, wait: Wait, everyone: frozenset[int]) -> frozenset[int]:
    """The ranks of the run that have to make the call in which a rank waits: those of its group, or of its default group, which
    has only some ranks where parts of a run (trainers, rollouts) have default groups of their own."""
    if _is_second_rendezvous(rank, wait):
        return frozenset()
    if wait.members is None:
        return frozenset(observed.default_members(rank.process)) or everyone
    return frozenset(member for member in wait.members if not _lacks_group(run.ranks.get(member), wait.operation.group))


def meets_others(run: Run, rank: Rank) -> bool:
    """Whether a rank waits for processes that are no ranks of its run: in a group between two runs, or in the rendezvous of
    one."""
    wait = rank.wait
    if wait is None:
        return False
    return _is_second_rendezvous(rank, wait) or any(
        (member not in run.ranks and member not in run.unseen)
        or _lacks_group(run.ranks.get(member), wait.operation.group)
        for member in wait.members or ()
    )


def _is_second_rendezvous(rank: Rank, wait: Wait) -> bool:
    """Whether a rendezvous is for another group than the default one, which the rank has: who its members are is not known."""
    in_handler = wait.kind == "rendezvous" and wait.operation.op in call_names.HANDLERS
    return in_handler and bool(observed.default_members(rank.process))


def _lacks_group(rank: Rank | None, name: str | None) -> bool:
    """Whether a rank does not have a group. One between two runs numbers its members otherwise than these do."""
    groups = observed.groups(rank.process) if rank is not None else ()
    return name is not None and bool(groups) and name not in {group.name for group in groups}


def find_enders(run: Run, rank: Rank) -> list[int]:
    """The ranks that may end the wait of one that is in no call: who may release the lock, or has to reply at the other end of
    the connection. For a lock in shared memory, these are ranks that wait for no other one: who holds it is not known, and a
    process outside of the run that is at work may release it. To a barrier, the only rank of the host that has not come may have
    to come, also if it waits."""
    hold = rank.hold
    if not isinstance(hold, AtFileLock | AtSharedLock | OnNetwork) or (
        hold.ends == "by-itself" and not isinstance(hold, AtFileLock)
    ):
        return []
    pids = {holder.pid for holder in hold.holders or ()}
    peers = [peer for peer in run.on(rank.host) if peer.pid in pids]
    if isinstance(hold, AtSharedLock):
        absent = _find_absent(run, rank.host, hold) if hold.of == "barrier" else None
        at_none = [peer for peer in peers if not isinstance(peer.hold, AtFileLock | AtSharedLock)]
        peers = [peer for peer in at_none if peer is absent or not peer.waits]
    if isinstance(hold, OnNetwork):
        peers = [peer for peer in peers if len(pids) == 1 and peer is not rank and _must_reply_itself(peer)]
        peers = [peer for peer in peers if _is_unread(run, rank, peer)]
    return sorted(peer.rank for peer in peers)


def _must_reply_itself(peer: Rank) -> bool:
    """Whether only the thread of a rank that waits in a call can reply to what came on its connections."""
    if not peer.waits or peer.moving or peer.process is None or peer.thread is None:
        return False
    return not may_serve_elsewhere(peer.process, peer.thread)


def _is_unread(run: Run, rank: Rank, peer: Rank) -> bool:
    """Whether what `rank` has sent over the only connection at which it waits lies unread at the end of `peer`, or `peer` has not
    accepted the connection: then no thread of it is about to reply."""
    host = next((host for host in run.hosts if host.name == rank.host), None)
    kernel = kernel_thread(rank.process, rank.thread) if rank.process is not None else None
    if host is None or kernel is None or isinstance(host.connections, Unavailable):
        return False
    sockets = host.connections.connections
    inodes = {file.inode for file in kernel.files}
    mine = [each for each in sockets if each.pid == rank.pid and each.inode in inodes and each.state == "ESTABLISHED"]
    if len(kernel.files) != 1 or len(mine) != 1:
        return False
    accepted = [each for each in sockets if links.end(each) == links.other_end(mine[0])]
    if accepted:
        return all(each.pid == peer.pid and each.receive_queue_bytes > 0 for each in accepted)
    # Of a socket that listens, the kernel counts the connections that nobody has accepted (sk_ack_backlog).
    port = mine[0].remote_port
    return any(
        each.pid == peer.pid and each.state == "LISTEN" and each.local_port == port and each.unacked for each in sockets
    )


def _find_absent(run: Run, host: str, barrier: AtSharedLock) -> Rank | None:
    """The rank that has not come to a barrier; None for several. All forks of a process have the memory of its barriers, so which
    of several ranks the barrier waits for is not known."""
    inside = {peer.rank for peer in run.on(host)
              if isinstance(peer.hold, AtSharedLock) and peer.hold.file == barrier.file}  # fmt: skip
    absent = [peer for peer in run.on(host) if peer.rank not in inside]
    return absent[0] if len(absent) == 1 else None


def seconds_silent(run: Run, *, standstill: bool) -> float | None:
    """For how many seconds the waiting ranks have exchanged no data, or all ranks if none waits and none works (`standstill`);
    None if unknown. Launchers without ranks have waited since their start."""
    if not run.ranks:
        return min((process.started_seconds_ago for _, process in run.launchers), default=None)
    if any(alike.first.spins or _uses_nccl(alike.first) for alike in run.waiting):
        return None  # NCCL does not send its data over these sockets, so their silence shows nothing
    if standstill and run.backend is None and not any(rank.uses_rpc for rank in run.living):
        return _seconds_blocked(run.living)
    classes = run.classes if standstill else run.waiting
    asked = [run.ranks[number] for number in numbers_of(classes)]
    blind = bool(run.blind_hosts())
    rpc = any(alike.first.uses_rpc for alike in classes)
    # Ranks that wait for nobody and have no connections may wait for the outside: a notebook, a server.
    timed = not (blind or standstill)
    ages = [seconds for rank in asked if (seconds := _seconds_quiet(rank, rpc=rpc, by_thread=timed)) is not None]
    if not ages and run.waiting and not blind and not rpc:
        # No data has been exchanged yet: the wait is as old as the processes.
        ages = [rank.process.started_seconds_ago for rank in asked if rank.process is not None]
    return min(ages, default=None)


def seconds_waited(run: Run, quiet: float | None) -> float | None:
    """For how many seconds the waiting ranks have waited: as long as they exchanged no data (`quiet` seconds), and at most since
    the last of them made its call by the records, or sent its request to the process that counts the ranks in the call."""
    recorded = seconds_recorded(run, run.waiting)
    waiting = [run.ranks[number] for number in numbers_of(run.waiting)]
    asked = (
        _seconds_since_request(run, rank) for rank in waiting if rank.wait is not None and rank.wait.counter is not None
    )
    return min((seconds for seconds in (quiet, recorded, *asked) if seconds is not None), default=None)


def _seconds_since_request(run: Run, rank: Rank) -> float | None:
    """For how many seconds, at least, a rank has sent no request to a process that is no rank: since the last byte on the
    connections that it has opened to others than services. None if no connection shows that."""
    own = _list_connections(run, [rank])
    # What ranks that stand still send on the side goes to services, which ask once a second or so.
    still = _list_connections(run, (peer for peer in run.on(rank.host) if not peer.moving))
    services = {(each.remote_address, each.remote_port) for each in still if each.bytes_moved}
    accepts = {each.local_port for each in own if each.state == "LISTEN"}
    sent = (
        each.last_sent_ms
        for each in own
        if each.state == "ESTABLISHED"
        and each.local_port not in accepts
        and (each.remote_address, each.remote_port) not in services
        and each not in rank.connections
        and not each.nothing_sent
    )
    return min((milliseconds / 1000 for milliseconds in sent if milliseconds is not None), default=None)


def _list_connections(run: Run, ranks: Iterable[Rank]) -> list[Connection]:
    """All connections of some ranks, also those to processes outside of the run."""
    places = [(rank.host, rank.pid) for rank in ranks if rank.host is not None]
    return [each for _, connections in links.connections_of(run.hosts, places) for each in connections]


def seconds_recorded(run: Run, classes: Iterable[Class]) -> float | None:
    """For how many seconds all ranks of some classes have waited in a call, by their records; None if these do not show it."""
    ranks = set(numbers_of(classes))
    calls = wait_seconds(calls for group in run.ledger.groups for rank, calls in group.ranks.items() if rank in ranks)
    transfers = (
        call.age_seconds
        for rank in ranks
        if (wait := run.ranks[rank].wait) is not None
        and wait.kind == "p2p"
        and rank in run.processes
        and not run.undated
        for peer, call in unfinished_transfers(run.processes[rank])
        if (peer, call.op) == (wait.operation.peer, wait.operation.op)
    )
    return min((seconds for seconds in (calls, *transfers) if seconds is not None), default=None)


def _seconds_blocked(ranks: Iterable[Rank]) -> float | None:
    """How long ranks without connections to each other have all been blocked. A rank that polls for a batch has waited as long as
    its dataloader's worker has not run; of other polls no beginning is known."""
    ages = []
    for rank in ranks:
        loader = rank.hold if isinstance(rank.hold, WaitsForLoader) else None
        worker = loader.worker if loader is not None else None
        process, in_python = (worker, None) if worker is not None else (rank.process, rank.thread)
        thread = kernel_thread(process, in_python) if process is not None else None
        ages.append(thread.idle_seconds if thread is not None and thread.timed is not True else None)
    read = [seconds for seconds in ages if seconds is not None]
    return min(read, default=None) if len(read) == len(ages) else None


def _seconds_quiet(rank: Rank, *, rpc: bool, by_thread: bool) -> float | None:
    """How long a rank has exchanged no data. No connection shows that for RPC, which uses shared memory within a host. Then it
    is how long the training thread has not run (`by_thread`), except in a rendezvous, where it runs for each attempt. An
    observer makes it run too, but sends nothing on the connection on which it asked a store."""
    if rank.silent_seconds is not None and not rpc:
        return rank.silent_seconds
    if not by_thread or rank.in_rendezvous:
        return None
    asked = rank.store_silent_seconds if rank.wait is not None and rank.wait.kind == "store" else None
    return max((seconds for seconds in (rank.idle_seconds, asked) if seconds is not None), default=None)


def _uses_nccl(rank: Rank) -> bool:
    return rank.wait is not None and "nccl" in backend_names(rank.wait.operation.backend)


def is_p2p(rank: Rank) -> bool:
    """Whether a rank waits in a send or a receive."""
    return rank.wait is not None and rank.wait.kind == "p2p"


def receives(rank: Rank) -> bool:
    """Whether a rank waits to receive from another one."""
    return rank.wait is not None and rank.wait.operation.op in call_names.RECEIVES


def peer_of(rank: Rank) -> int | None:
    """The rank that a waiting rank's send or receive names, if it is known."""
    return rank.wait.operation.peer if rank.wait is not None else None


def calls_match(rank: Rank, peer: Rank) -> bool:
    """Whether `peer` is in the call that matches the send or receive of `rank`."""
    if rank.wait is None or peer.wait is None or not (rank.wait.kind == peer.wait.kind == "p2p"):
        return False
    mine, theirs = rank.wait.operation, peer.wait.operation
    opposite = (mine.op in call_names.SENDS) != (theirs.op in call_names.SENDS)
    return opposite and mine.peer == peer.rank and theirs.peer in (rank.rank, None)
