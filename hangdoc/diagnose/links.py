"""Connections between the ranks of a job, and how long they have been silent."""

from hangdoc.diagnose.model import Placed
from hangdoc.parse import natural
from hangdoc.snapshot import Connection, Connections

Connected = dict[int, tuple[tuple[Connection, ...], tuple[Connection, ...]]]


def pairs_of(members: dict[int, Placed], master: str | None) -> Connected:
    """Each rank's connections to other ranks of the job, and those to the world. Helpers inherit copies of them, the
    store's say nothing."""
    port = master.rpartition(":")[2] if master else None
    store = natural(port)
    owners: dict[tuple[str, str, int, str, int], int] = {}
    mine: dict[int, list[Connection]] = {rank: [] for rank in members}
    by_pid = {(host.name, process.pid): rank for rank, (host, process) in members.items()}
    local_addresses: set[str] = set()
    for host in {host.name: host for host, _ in members.values()}.values():
        if not isinstance(host.connections, Connections):
            continue
        for connection in host.connections.connections:
            local_addresses.add(connection.local_address)
            rank = by_pid.get((host.name, connection.pid))
            if rank is None or store in (connection.local_port, connection.remote_port):
                continue
            mine[rank].append(connection)
            scope = connection.namespace if connection.local_address.startswith("127.") else ""
            owners[scope, connection.local_address, connection.local_port,
                   connection.remote_address, connection.remote_port] = rank  # fmt: skip
    found = {}
    for rank, connections in mine.items():
        kept, others = [], []
        for c in connections:
            if c.state == "LISTEN":
                continue
            scope = c.namespace if c.local_address.startswith("127.") else ""
            peer = owners.get((scope, c.remote_address, c.remote_port, c.local_address, c.local_port))
            # The other end is a rank we saw, or may be one on a host that nobody looked at.
            if (peer is not None and peer != rank) or (peer is None and c.remote_address not in local_addresses):
                kept.append(c)
            if peer is None:
                others.append(c)
        found[rank] = (tuple(kept), tuple(others))
    return found


def silent_seconds(pairs: tuple[Connection, ...]) -> float | None:
    """Since the last byte to or from any other rank; None without a connection that could tell."""
    ages = [
        c.last_received_ms if _unanswered(c) else min(c.last_sent_ms, c.last_received_ms)
        for c in pairs
        if c.state == "ESTABLISHED" and c.last_sent_ms is not None and c.last_received_ms is not None
    ]
    return round(min(ages) / 1000, 1) if ages else None


def _unanswered(c: Connection) -> bool:
    """An attempt to send counts as sent: only what comes back shows that the other end is there."""
    return bool(c.retransmits) or (c.send_queue_bytes > 0 and not c.bytes_moved)
