"""Connections between ranks, how long they have been silent, and which ranks wait for which keys of the run's stores."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from hangdoc.parse import natural
from hangdoc.reasoning.model.run import Placed, StoreWait
from hangdoc.reasoning.runs.processes import Gathered, Helpers
from hangdoc.snapshot import Connection, Connections, Host, StoreServers

End = tuple[str, str, int, str, int]
"""Of a connection: the network namespace where its address is a loopback one, own address and port, the other's."""


class Links(NamedTuple):
    """The connections of a rank."""

    ranks: tuple[Connection, ...]
    """To other ranks of the job."""
    others: tuple[Connection, ...]
    """Those of it and its helpers to the world, listening ones too."""
    stores: tuple[Connection, ...]
    """To stores, as their client."""


Connected = dict[int, Links]


class ConnectionIndex:
    """The connections of a host by process. It is made once, because a host may have many runs."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._by_pid: dict[int, list[tuple[int, Connection]]] = {}
        for at, c in enumerate(connections):
            self._by_pid.setdefault(c.pid, []).append((at, c))
        self._all = connections

    def of(self, pids: Iterable[int]) -> list[Connection]:
        """Those of some processes, in their order."""
        numbered = [entry for pid in set(pids) for entry in self._by_pid.get(pid, ())]
        return [c for _, c in sorted(numbered, key=lambda entry: entry[0])]

    @cached_property
    def addresses(self) -> frozenset[str]:
        """The host's own addresses of all connections."""
        return frozenset(c.local_address for c in self._all)

    @cached_property
    def live_addresses(self) -> frozenset[str]:
        """Those of the established ones."""
        return frozenset(c.local_address for c in self._all if c.state == "ESTABLISHED")

    @cached_property
    def live_ends(self) -> frozenset[End]:
        """The ends of the established ones."""
        return frozenset(end(c) for c in self._all if c.state == "ESTABLISHED")


_SEARCHED = 4
_NONE = ConnectionIndex(())


def index_of(host: Host) -> ConnectionIndex:
    """The index of a host's connections, which is kept with them."""
    if not isinstance(host.connections, Connections):
        return _NONE
    kept = host.connections.__dict__
    if "index" not in kept:
        kept["index"] = ConnectionIndex(host.connections.connections)
    index: ConnectionIndex = kept["index"]
    return index


def _few(sets: Sequence[frozenset[str]]) -> Sequence[frozenset[str]]:
    """Sets to search one after the other. A run on many hosts gets one set, a small run does not copy its hosts' addresses."""
    return sets if len(sets) <= _SEARCHED else (frozenset().union(*sets),)


def connections_of(
    hosts: Iterable[Host], who: Iterable[tuple[str, int | None]]
) -> Iterator[tuple[Host, list[Connection]]]:
    """Each host with the connections of some processes (host, pid)."""
    pids: dict[str, list[int]] = {}
    for name, pid in who:
        if pid is not None:
            pids.setdefault(name, []).append(pid)
    for host in hosts:
        if host.name in pids:
            yield host, index_of(host).of(pids[host.name])


def peers_by_connection(
    hosts: tuple[Host, ...], wanted: set[tuple[str, int]], stores: set[int]
) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Pairs of processes, as (host, pid) among the `wanted`, that have a live connection to each other; without those to a
    store: a new rank can join the store of an earlier run. `stores`: ports that are known to be stores' already."""
    stores = stores | store_ports(hosts, wanted)
    owner: dict[End, tuple[tuple[str, int], Connection]] = {}
    for host, mine in connections_of(hosts, wanted):
        for c in mine:
            if c.state == "ESTABLISHED" and not _of_store(c, stores):
                owner[end(c)] = (host.name, c.pid), c
    for who, c in owner.values():
        peer = owner.get(other_end(c))
        if peer is not None and peer[0] != who:
            yield who, peer[0]


def store_ports(hosts: Iterable[Host], pids: Iterable[tuple[str, int | None]]) -> set[int]:
    """Ports at which processes, (host, pid) of `pids`, serve a store. Whoever serves a TCPStore is also its client
    (torch/csrc/distributed/c10d/TCPStore.cpp), so it has a connection to itself; no backend connects a rank to itself."""
    ports = set()
    for _, mine in connections_of(hosts, pids):
        listening = {(c.pid, c.local_port) for c in mine if c.state == "LISTEN"}
        if not listening:
            continue
        # Few lead to a port of their own process, although each of thousands has a port at which its process listens.
        own = [c for c in mine if (c.pid, c.remote_port) in listening and c.state == "ESTABLISHED"]
        if not own:
            continue
        theirs = {c.pid for c in own}
        ends = {
            (c.pid, end(c))
            for c in mine
            if c.pid in theirs and (c.pid, c.local_port) in listening and c.state == "ESTABLISHED"
        }
        ports |= {c.remote_port for c in own if (c.pid, other_end(c)) in ends}
    return ports


def find_store_guests(hosts: Collection[Host], members: Collection[tuple[str, int | None]]) -> tuple[str, ...]:
    """The addresses of processes that were not observed and are live clients of a store that one of `members`, (host, pid),
    serves: each may set a key."""
    stores = store_ports(hosts, members)
    accepted = (c for _, mine in connections_of(hosts, members) for c in mine if c.local_port in stores)
    return _list_strangers(hosts, accepted)


def find_foreign_servers(hosts: Collection[Host], awaited: Collection[tuple[str, int, int]]) -> tuple[str, ...]:
    """The addresses of processes that were not observed, at the other end of sockets (host, pid, inode)."""
    return _list_strangers(
        hosts,
        (
            c
            for host, mine in connections_of(hosts, [(name, pid) for name, pid, _ in awaited])
            for c in mine
            if (host.name, c.pid, c.inode) in awaited
        ),
    )


def _list_strangers(hosts: Collection[Host], connections: Iterable[Connection]) -> tuple[str, ...]:
    """The addresses at the other ends of live connections where no observed process is."""
    observed = [index_of(host).live_ends for host in hosts]
    strangers = (
        c for c in connections if c.state == "ESTABLISHED" and not any(other_end(c) in ends for ends in observed)
    )
    return tuple(sorted(f"{c.remote_address}:{c.remote_port}" for c in strangers))


def _of_store(c: Connection, stores: Collection[int | None]) -> bool:
    return c.local_port in stores or c.remote_port in stores


def end(c: Connection) -> End:
    """All that tells a connection from others: many connections of a rank may have the port at which it listens."""
    return _scope(c), c.local_address, c.local_port, c.remote_address, c.remote_port


def other_end(c: Connection) -> End:
    """`end` of the same connection in the other process."""
    return _scope(c), c.remote_address, c.remote_port, c.local_address, c.local_port


def _scope(c: Connection) -> str:
    """The network in which its addresses are unique."""
    return c.namespace if c.local_address[:4] == "127." else ""


def links_of(members: dict[int, Placed], master: str | None, below: Helpers) -> Connected:
    """Each rank's connections. Helpers, which are `below` the ranks, inherit copies of them."""
    hosts = {host.name: host for host, _ in members.values()}
    rank_of: dict[tuple[str, int | None], int] = {(host.name, p.pid): rank for rank, (host, p) in members.items()}
    helper_of = {
        (name, helper.pid): rank
        for (name, pid), rank in rank_of.items()
        for helper in below.get((name, pid), ())
        if helper.role == "helper"
    }
    stores = store_ports(hosts.values(), rank_of.keys()) | {natural((master or "").rpartition(":")[2])}
    owners: dict[End, int] = {}
    own: dict[int, list[Connection]] = {rank: [] for rank in members}
    of_helpers: dict[int, list[Connection]] = {rank: [] for rank in members}
    to_stores: dict[int, list[Connection]] = {rank: [] for rank in members}
    for host, connections in connections_of(hosts.values(), [*rank_of, *helper_of]):
        for c in connections:
            rank = rank_of.get((host.name, c.pid))
            if _of_store(c, stores):
                if rank is not None and c.remote_port in stores:
                    to_stores[rank].append(c)
            elif rank is not None:
                own[rank].append(c)
                owners[end(c)] = rank
            else:
                of_helpers[helper_of[host.name, c.pid]].append(c)
    local = _few([index_of(host).addresses for host in hosts.values()])
    return {
        rank: Links(*_split(rank, own[rank], of_helpers[rank], owners, local), tuple(to_stores[rank]))
        for rank in members
    }


def accepted_from_outside(pid: int, links: Links, *, all_seen: bool) -> tuple[Connection, ...]:
    """The live connections that a rank has accepted at its own ports from processes outside of its run. `all_seen`: whether all
    ranks were observed; otherwise each may be that of another one."""
    if not all_seen:
        return ()
    listening = {c.local_port for c in links.others if (c.pid, c.state) == (pid, "LISTEN")}
    return tuple(c for c in links.others if (c.pid, c.state) == (pid, "ESTABLISHED") and c.local_port in listening)


def _split(
    rank: int,
    own: Iterable[Connection],
    of_helpers: Iterable[Connection],
    owners: dict[End, int],
    local: Sequence[frozenset[str]],
) -> tuple[tuple[Connection, ...], tuple[Connection, ...]]:
    """(to other ranks, to the world)."""
    to_ranks, to_world = [], []
    for c in own:
        peer = owners.get(other_end(c)) if c.state != "LISTEN" else None
        if peer is None:
            to_world.append(c)
        elif peer != rank:
            to_ranks.append(c)
        if peer is None and c.state != "LISTEN" and not any(c.remote_address in addresses for addresses in local):
            to_ranks.append(c)  # the other end may be a rank on a host that was not observed
    to_world += [c for c in of_helpers if c.state != "LISTEN" and end(c) not in owners]
    return tuple(to_ranks), tuple(to_world)


def lead_elsewhere(members: dict[int, Placed], stores: set[int]) -> bool | None:
    """Whether a live connection of a rank leads to a process of its own host that was not looked at, which may be another rank;
    None where sockets could not be read. `stores`: ports of the run's stores."""
    hosts = {host.name: host for host, _ in members.values()}
    if not all(isinstance(host.connections, Connections) for host in hosts.values()):
        return None
    mine = [(host.name, process.pid) for host, process in members.values()]
    stores = stores | store_ports(hosts.values(), mine)
    for host, connections in connections_of(hosts.values(), mine):
        index = index_of(host)
        ours = (c for c in connections if c.state == "ESTABLISHED" and c.remote_address in index.live_addresses)
        if any(other_end(c) not in index.live_ends and not _of_store(c, stores) for c in ours):
            return True
    return False


def silent_seconds(pairs: tuple[Connection, ...]) -> float | None:
    """Since the last byte on any of some connections; None without one that could tell."""
    shortest: int | None = None
    for c in pairs:
        sent, received = c.last_sent_ms, c.last_received_ms
        if sent is not None and received is not None and c.state == "ESTABLISHED":
            age = sent if sent < received and not _unanswered(c) else received
            if shortest is None or age < shortest:
                shortest = age
    return round(shortest / 1000, 1) if shortest is not None else None


def _unanswered(c: Connection) -> bool:
    """An attempt to send counts as sent: only what comes back shows that the other end is there."""
    return bool(c.retransmits) or (c.send_queue_bytes > 0 and not c.bytes_moved)


# --- keys of stores ---------------------------------------------------------------------------------------------------


def store_waits(run: Gathered, members: dict[int, Placed]) -> tuple[StoreWait, ...]:
    """The waits that the stores of a run show, the keys of most ranks first."""
    servers = [
        (host, process.pid, server)
        for host, process in run.processes
        if isinstance(process.stores, StoreServers)
        for server in process.stores.servers
        if server.awaited
    ]
    if not servers:
        return ()
    owners = _owners(members)
    waits: dict[StoreWait, None] = {}
    for host, pid, server in servers:
        sockets = {c.inode: c for c in index_of(host).of([pid]) if c.local_port == server.port}
        for key in server.awaited:
            clients = (sockets[inode] for inode in key.sockets if inode in sockets)
            waiting = {owners[other_end(c)] for c in clients if other_end(c) in owners}
            if waiting:
                ranks = tuple(sorted(waiting))
                waits[StoreWait(key=key.name, ranks=ranks, alike=key.alike, alike_count=key.alike_count)] = None
    return tuple(sorted(waits, key=lambda wait: (-len(wait.ranks), wait.key)))


def _owners(members: dict[int, Placed]) -> dict[End, int]:
    """The rank at each end of a live connection. A rank that serves a store has both ends of its own one."""
    hosts = {host.name: host for host, _ in members.values()}
    ranks = {(host.name, process.pid): rank for rank, (host, process) in members.items()}
    return {
        end(c): ranks[host.name, c.pid]
        for host, connections in connections_of(hosts.values(), ranks)
        for c in connections
        if c.state == "ESTABLISHED"
    }
