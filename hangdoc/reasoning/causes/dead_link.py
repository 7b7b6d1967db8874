"""A connection between two ranks that no longer delivers data."""

from hangdoc.reasoning.causes import network
from hangdoc.reasoning.causes.cause import Cause
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.ranks.holds import Stopped
from hangdoc.snapshot import Connection

_BACKOFF = 3
"""Doublings of the retransmission timer: several seconds without a reply."""
_SILENT_MS = 2000


class DeadLink(Cause, frozen=True, kw_only=True):
    """Established connections that no longer deliver data."""

    NAME = "dead-link"
    lost: dict[int, tuple[Connection, ...]]
    """By the rank at whose end it was observed."""


def find(run: Run) -> DeadLink | None:
    """All such connections of a run."""
    window = max((host.window_seconds for host in run.hosts), default=0.0)
    dead = {
        rank.rank: lost for rank in run.ranks.values() if (lost := [c for c in rank.connections if _lost(c, window)])
    }
    if not dead or any(isinstance(rank.hold, Stopped) for rank in run.ranks.values()):
        return None
    ends = {(c.local_address, c.local_port): c for rank in run.ranks.values() for c in rank.connections}
    kept = {n: tuple(c for c in lost if _unanswered(c) or _has_room(c, ends)) for n, lost in dead.items()}
    for_good = {n: connections for n, connections in kept.items() if connections}
    return DeadLink(lost=for_good, culprits=tuple(_ends(run, for_good)), ends="never") if for_good else None


def _lost(connection: Connection, window: float) -> bool:
    """Whether no sent data arrives, by the state of this end."""
    return _unanswered(connection) or _unsent(connection, window)


def _has_room(connection: Connection, ends: dict[tuple[str, int], Connection]) -> bool:
    """Whether the other end was observed and could receive more: then the queue of this host drops the data."""
    peer = ends.get((connection.remote_address, connection.remote_port))
    return peer is not None and peer.receive_queue_bytes == 0


def _unsent(connection: Connection, window: float) -> bool:
    """Whether data waited to be sent for the whole window."""
    return (
        connection.state == "ESTABLISHED"
        and not connection.bytes_moved
        and connection.send_queue_bytes > 0
        and window >= _SILENT_MS / 4000
        and (connection.busy_ms or 0) >= 900 * window
        and (connection.last_received_ms or 0) >= _SILENT_MS
    )


def _unanswered(connection: Connection) -> bool:
    """Whether the kernel retransmits repeatedly without a reply."""
    return (
        connection.state == "ESTABLISHED"
        and not connection.bytes_moved
        and (connection.unacked or 0) > 0
        and max(connection.backoff or 0, connection.retransmits or 0) >= _BACKOFF
    )


def _ends(run: Run, dead: dict[int, tuple[Connection, ...]]) -> list[int]:
    """Ranks at either end. The other end of a dead connection often has nothing to send and does not notice. If all connections
    lead to hosts that were not observed, the ranks that were not observed."""
    known = {address for host in run.hosts for one in network.interfaces(host, None) for address in one.addresses}
    if known and run.unseen and all(c.remote_address not in known for lost in dead.values() for c in lost):
        return sorted(run.unseen)
    ends = set(dead)
    lost = {(c.remote_address, c.remote_port) for connections in dead.values() for c in connections}
    for rank in run.ranks.values():
        if any((c.local_address, c.local_port) in lost for c in rank.connections):
            ends.add(rank.rank)
    counted = {
        n: sum((c.local_address, c.local_port) in lost for c in run.ranks[n].connections) + len(dead.get(n, ()))
        for n in ends
    }
    most = max(counted.values())
    # A rank at the end of all of them is cut off; with a single link, the side is unknown.
    alone = [n for n, number in counted.items() if number == most]
    return sorted(alone if len(alone) == 1 and len(ends) > 2 else ends)
