"""A connection between two ranks that no longer delivers data."""

from hangdoc.reasoning.evidence import observed as addresses
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Stopped
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.links import end, other_end
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
    silent = [(r.rank, c) for r in run.ranks.values() for c in r.connections if _is_silent(c)]
    dead = [(rank, c) for rank, c in silent if _unanswered(c) or _unsent(c, window)]
    if not dead or any(isinstance(rank.hold, Stopped) for rank in run.ranks.values()):
        return None
    # Data that the kernel has not sent is lost if the other end could receive more.
    room = {end(c) for r in run.ranks.values() for c in r.connections if not c.receive_queue_bytes}
    lost: dict[int, tuple[Connection, ...]] = {}
    for rank, c in dead:
        if _unanswered(c) or other_end(c) in room:
            lost[rank] = (*lost.get(rank, ()), c)
    return DeadLink(lost=lost, culprits=tuple(_cut_off(run, lost)), ends="never") if lost else None


def _is_silent(c: Connection) -> bool:
    return c.state == "ESTABLISHED" and not c.bytes_moved


def _unsent(c: Connection, window: float) -> bool:
    """Whether data waited to be sent for the whole window."""
    waited = (c.busy_ms or 0) >= 900 * window and (c.last_received_ms or 0) >= _SILENT_MS
    return c.send_queue_bytes > 0 and window >= _SILENT_MS / 4000 and waited


def _unanswered(c: Connection) -> bool:
    """Whether the kernel retransmits repeatedly without a reply."""
    return (c.unacked or 0) > 0 and max(c.backoff or 0, c.retransmits or 0) >= _BACKOFF


def _cut_off(run: Run, dead: dict[int, tuple[Connection, ...]]) -> list[int]:
    """Ranks at either end. The other end of a dead connection often has nothing to send and does not notice. If all connections
    lead to hosts that were not observed, the ranks that were not observed."""
    known = {address for host in run.hosts for one in addresses.interfaces(host, None) for address in one.addresses}
    if known and run.unseen and all(c.remote_address not in known for lost in dead.values() for c in lost):
        return sorted(run.unseen)
    lost = {other_end(c) for connections in dead.values() for c in connections}
    counted = {
        rank.rank: number
        for rank in run.ranks.values()
        if (number := sum(end(c) in lost for c in rank.connections) + len(dead.get(rank.rank, ())))
    }
    most = max(counted.values())
    # A rank at the end of all of them is cut off; with a single link, the side is unknown.
    alone = [rank for rank, number in counted.items() if number == most]
    return sorted(alone if len(alone) == 1 and len(counted) > 2 else counted)
