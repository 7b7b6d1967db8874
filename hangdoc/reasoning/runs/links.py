"""Connections between ranks, and how long they have been silent."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from hangdoc.parse import natural
from hangdoc.reasoning.model import Placed
from hangdoc.reasoning.ranks import known
from hangdoc.snapshot import Connection, Connections, Host

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


def peers_by_connection(
    hosts: tuple[Host, ...], wanted: set[tuple[str, int]], stores: set[int]
) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Pairs of processes, as (host, pid) among the `wanted`, that have a live connection to each other; without those to a
    store: a new rank can join the store of an earlier run. `stores`: ports that are known to be stores' already."""
    stores = stores | store_ports(hosts, wanted)
    owner: dict[End, tuple[tuple[str, int], Connection]] = {}
    for host in hosts:
        for c in known.connections(host):
            who = (host.name, c.pid)
            if who in wanted and c.state == "ESTABLISHED" and not _of_store(c, stores):
                owner[end(c)] = who, c
    for who, c in owner.values():
        peer = owner.get(other_end(c))
        if peer is not None and peer[0] != who:
            yield who, peer[0]


def store_ports(hosts: Iterable[Host], pids: Collection[tuple[str, int | None]]) -> set[int]:
    """Ports at which processes, (host, pid) of `pids`, serve a store. Whoever serves a TCPStore is also its client
    (torch/csrc/distributed/c10d/TCPStore.cpp), so it has a connection to itself; no backend connects a rank to itself."""
    found = set()
    for host in hosts:
        mine = [c for c in known.connections(host) if (host.name, c.pid) in pids]
        listening = {(c.pid, c.local_port) for c in mine if c.state == "LISTEN"}
        if not listening:
            continue
        mine = [c for c in mine if c.state == "ESTABLISHED"]
        ends = {(c.pid, end(c)) for c in mine}
        found |= {c.local_port for c in mine if (c.pid, c.local_port) in listening and (c.pid, other_end(c)) in ends}
    return found


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


def pairs_of(members: dict[int, Placed], master: str | None) -> Connected:
    """Each rank's connections. Helpers inherit copies of them."""
    hosts = {host.name: host for host, _ in members.values()}
    rank_of: dict[tuple[str, int | None], int] = {(host.name, p.pid): rank for rank, (host, p) in members.items()}
    stores = store_ports(hosts.values(), rank_of.keys()) | {natural((master or "").rpartition(":")[2])}
    owners: dict[End, int] = {}
    mine: dict[int, list[Connection]] = {rank: [] for rank in members}
    helpers: dict[int, list[Connection]] = {}
    to_stores: dict[int, list[Connection]] = {}
    local_addresses: set[str] = set()
    for host in hosts.values():
        name = host.name
        parent = {process.pid: process.owner for process in host.processes if process.role == "helper"}
        for c in known.connections(host):
            local_addresses.add(c.local_address)
            of = rank_of.get((name, c.pid))
            if _of_store(c, stores):
                if of is not None and c.remote_port in stores:
                    to_stores.setdefault(of, []).append(c)
                continue
            if of is not None:
                mine[of].append(c)
                owners[end(c)] = of
            elif (of := rank_of.get((name, parent.get(c.pid)))) is not None:
                helpers.setdefault(of, []).append(c)
    return {
        rank: Links(
            *_parted(rank, mine[rank], helpers.get(rank, ()), owners, local_addresses), tuple(to_stores.get(rank, ()))
        )
        for rank in members
    }


def _parted(
    rank: int, own: list[Connection], of_helpers: Sequence[Connection], owners: dict[End, int], local: set[str]
) -> tuple[tuple[Connection, ...], tuple[Connection, ...]]:
    """(to other ranks, to the world)."""
    kept, others = [], []
    for c in own:
        if c.state == "LISTEN":
            others.append(c)
            continue
        peer = owners.get(other_end(c))
        # The other end is an observed rank, or may be a rank on a host that was not observed.
        if peer != rank if peer is not None else c.remote_address not in local:
            kept.append(c)
        if peer is None:
            others.append(c)
    others += [c for c in of_helpers if c.state != "LISTEN" and end(c) not in owners]
    return tuple(kept), tuple(others)


def lead_elsewhere(members: dict[int, Placed], stores: set[int]) -> bool | None:
    """Whether a live connection of a rank leads to a process of its own host that was not looked at, which may be another rank;
    None where sockets could not be read. `stores`: ports of the run's stores."""
    hosts = {host.name: host for host, _ in members.values()}
    if not all(isinstance(host.connections, Connections) for host in hosts.values()):
        return None
    mine = {(host.name, process.pid) for host, process in members.values()}
    stores = stores | store_ports(hosts.values(), mine)
    for host in hosts.values():
        live = _live(host)
        ends, here = {end(c) for c in live}, {c.local_address for c in live}
        ours = (c for c in live if (host.name, c.pid) in mine and c.remote_address in here)
        if any(other_end(c) not in ends and not _of_store(c, stores) for c in ours):
            return True
    return False


def lead_to_other_hosts(members: dict[int, Placed]) -> bool:
    """Whether a live connection of a rank leads to an address that is on no host of the run that was observed."""
    hosts = {host.name: host for host, _ in members.values()}
    mine = {(host.name, process.pid) for host, process in members.values()}
    live = [(host.name, c) for host in hosts.values() for c in _live(host)]
    here = {c.local_address for _, c in live}
    return any((name, c.pid) in mine and c.remote_address not in here for name, c in live)


def _live(host: Host) -> list[Connection]:
    return [c for c in known.connections(host) if c.state == "ESTABLISHED"]


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
