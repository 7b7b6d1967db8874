"""An established connection stopped answering (retransmits, backoff).

## What it finds

A connection between two ranks that is established, has data that the other side does not acknowledge, and whose kernel
retransmits it again and again, with nothing passed in the window.

## Why it hangs

A cable, a switch, a firewall's forgotten state or a moved container takes the packets away. TCP goes on trying for a
quarter of an hour before it tells the program. Both ranks stand in the same operation: nothing in the program is wrong.

## Evidence

Unacknowledged segments, retransmits and backoff of the connection, its queue, and since when no byte came through.

## What to do

Ping between the two hosts on the interface that the addresses belong to; look at the counters of the interface
(`ip -s link`), the firewall's log, the switch. The run cannot be mended unless the link comes back soon.

## When it would be wrong

A short loss in a congested network backs off once or twice and recovers; it takes several retransmits in silence to be
named.

## References

- tcp(7), tcp_retries2: https://man7.org/linux/man-pages/man7/tcp.7.html
- ss(8): https://man7.org/linux/man-pages/man8/ss.8.html
"""

import shlex
from collections.abc import Iterator

from hangdoc.diagnose import network, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration
from hangdoc.snapshot import Connection

CODE = "HD407"
NAME = "peer-unreachable"
EXPLAINS = ("HD901", "HD201", "HD202", "HD603")

_BACKOFF = 3
"""Doublings of the retransmission timer: several seconds without an answer."""
_SILENT_MS = 2000


def check(run: Run) -> Iterator[Finding]:
    """One finding for all ranks at the ends of dead connections."""
    window = max((host.window_seconds for host in run.hosts), default=0.0)
    dead = {
        rank.rank: lost for rank in run.ranks.values() if (lost := [c for c in rank.connections if _lost(c, window)])
    }
    if not dead:
        return
    ends = {(c.local_address, c.local_port): c for rank in run.ranks.values() for c in rank.connections}
    dead = {n: kept for n, lost in dead.items() if (kept := [c for c in lost if _unanswered(c) or _has_room(c, ends)])}
    if dead and not any(rank.state == "stopped" for rank in run.ranks.values()):
        yield _finding(run, dead)


def _lost(connection: Connection, window: float) -> bool:
    """Whether nothing that a connection is given arrives, as far as this end can tell."""
    return _unanswered(connection) or _unsent(connection, window)


def _has_room(connection: Connection, ends: dict[tuple[str, int], Connection]) -> bool:
    """Whether the other end was seen and could take more: then it is this host's own queue that drops what is sent."""
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
    """Whether the kernel retransmits again and again without an answer."""
    return (
        connection.state == "ESTABLISHED"
        and not connection.bytes_moved
        and (connection.unacked or 0) > 0
        and max(connection.backoff or 0, connection.retransmits or 0) >= _BACKOFF
    )


def _ends(run: Run, dead: dict[int, list[Connection]]) -> list[int]:
    """Ranks at either end: the other end of a dead connection often has nothing to send and knows of nothing. Where all of them
    lead to hosts that nobody could look at, the ranks that were not seen."""
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
    # A rank at whose end all of them meet is cut off; with one link only, nobody can tell which side.
    alone = [n for n, number in counted.items() if number == most]
    return sorted(alone if len(alone) == 1 and len(ends) > 2 else ends)


def _finding(run: Run, dead: dict[int, list[Connection]]) -> Finding:
    culprits = _ends(run, dead)
    first = min(dead)
    connection = dead[first][0]
    victims = [rank.rank for rank in run.waiting()]
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.93,
        culprits=culprits,
        victims=victims,
        summary=f"{_link(run, culprits)} carries nothing any more: rank {first} retransmits to {connection.remote_address} "
        "without an answer",
        evidence=[
            *(_evidence(run.ranks[number], c) for number, lost in sorted(dead.items())[:6] for c in lost[:2]),
            *words.class_evidence(run.waiting()),
            *words.standstill(run),
        ],
        remedy="Find out what takes the packets between the two hosts: interface counters, firewall, switch.",
        commands=(
            f"ping -c 3 {connection.remote_address}",
            f"ss -tnoi {shlex.quote(f'dst {connection.remote_address}')}",
        ),
    )


def _link(run: Run, culprits: list[int]) -> str:
    who = words.ranks(culprits)
    if set(culprits) <= set(run.unseen):
        return f"the link to {who}, which nobody could look at,"
    return f"the link between {who if len(culprits) > 1 else f'{who} and its peers'}"


def _evidence(rank: Rank, c: Connection) -> Evidence:
    since = f", nothing received for {duration(c.last_received_ms / 1000)}" if c.last_received_ms is not None else ""
    return Evidence(
        rank=rank.rank,
        probe="sockets",
        text=f"{c.local_address}:{c.local_port} to {c.remote_address}:{c.remote_port}: {c.unacked} segments unacknowledged, "
        f"{c.retransmits or 0} retransmits, backoff {c.backoff or 0}, {c.send_queue_bytes} bytes queued{since}",
    )
