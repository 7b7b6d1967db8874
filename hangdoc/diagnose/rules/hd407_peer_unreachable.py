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

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes.dead_link import DeadLink
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration
from hangdoc.snapshot import Connection

CODE = "HD407"
NAME = "peer-unreachable"
ABOUT = (DeadLink,)


def say(run: Run, blockage: Blockage) -> Finding:
    """All ranks at the ends of dead connections."""
    cause = blockage.cause
    assert isinstance(cause, DeadLink)  # noqa: S101  (see ABOUT)
    first = min(cause.lost)
    address = cause.lost[first][0].remote_address
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.93,
        summary=f"{_link(run, blockage.blamed)} is dead: data that rank {first} sends to {address} does not arrive",
        evidence=[
            *(_evidence(number, c) for number, lost in sorted(cause.lost.items())[:6] for c in lost[:2]),
            *words.class_evidence(run.waiting),
            *words.standstill(run),
        ],
        remedy="Find out what drops the packets between the two hosts: check interface counters, firewall and switch.",
        commands=(f"ping -c 3 {address}", f"ss -tnoi {shlex.quote(f'dst {address}')}"),
    )


def _link(run: Run, culprits: tuple[int, ...]) -> str:
    who = words.ranks(culprits)
    if set(culprits) <= set(run.unseen):
        return f"the connection to {who} (not observed)"
    return f"the connection between {who if len(culprits) > 1 else f'{who} and its peers'}"


def _evidence(rank: int, c: Connection) -> Evidence:
    since = f", nothing received for {duration(c.last_received_ms / 1000)}" if c.last_received_ms is not None else ""
    return Evidence(
        rank=rank,
        probe="sockets",
        text=f"{c.local_address}:{c.local_port} to {c.remote_address}:{c.remote_port}: {c.unacked} segments unacknowledged, "
        f"{c.retransmits or 0} retransmits, backoff {c.backoff or 0}, {c.send_queue_bytes} bytes queued{since}",
    )
