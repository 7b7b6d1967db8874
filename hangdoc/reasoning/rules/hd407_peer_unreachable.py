"""An established connection between two ranks no longer delivers data.

## What it finds

An established connection between two ranks on which sent data is not
acknowledged. The kernel retransmits it again and again, and no byte arrived
during the observation.

## Why it hangs

A broken cable, a switch, a firewall that lost its state, or a moved container
drops the packets. TCP retries for about 15 minutes before it reports an error
to the program. Both ranks wait in the same operation. The program itself is
correct.

## Example

```sh
conntrack -F   # <- the firewall forgets established connections
```

## Use instead

```sh
ping -c 3 node1              # on the interface of the connection
ip -s link                   # error and drop counters
ss -tnoi dst 10.0.0.2        # retransmits and backoff of the connection
sysctl net.ipv4.tcp_retries2 # a lower value gives an error sooner
```

The run cannot continue unless the link comes back soon.

## How hangdoc knows

It reads the unacknowledged segments, retransmits and backoff of the connection,
its send queue, and the time since the last byte was received.

## When it can be wrong

A short loss in a congested network causes one or two retransmits and then
recovers. The finding needs several retransmits without a reply.

## References

- tcp(7), tcp_retries2: https://man7.org/linux/man-pages/man7/tcp.7.html
- ss(8): https://man7.org/linux/man-pages/man8/ss.8.html
"""

from hangdoc.phrases import duration
from hangdoc.reasoning.causes.network import DeadLink
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import to_host
from hangdoc.snapshot import Connection


@about(DeadLink)
def describe(run: Run, blockage: Blockage, cause: DeadLink) -> Draft:
    first = min(cause.lost)
    address = cause.lost[first][0].remote_address
    return Draft(
        confidence=0.93,
        summary=f"{_link(run, blockage.blamed)} is dead: data that rank {first} sends to {address} does not arrive",
        evidence=[
            *(_evidence(number, c) for number, lost in sorted(cause.lost.items())[:6] for c in lost[:2]),
            *words.stacks(run, run.waiting),
        ],
        remedy="Find out what drops the packets between the two hosts: check interface counters, firewall and switch.",
        commands=(
            *to_host("ping", "-c", "3", address, address=address),
            *to_host("ss", "-tnoi", f"dst {address}", address=address),
        ),
    )


def _link(run: Run, culprits: tuple[int, ...]) -> str:
    who = words.ranks(culprits)
    if set(culprits) <= set(run.unseen):
        return f"the connection to {who} (not observed)"
    return f"the connection between {who if len(culprits) > 1 else f'{who} and its peers'}"


def _evidence(rank: int, c: Connection) -> Evidence:
    since = f", nothing received for {duration(c.last_received_ms / 1000)}" if c.last_received_ms is not None else ""
    return Evidence(
        rank,
        "sockets",
        f"{words.ends(c)}: {c.unacked} segments unacknowledged, {c.retransmits or 0} retransmits, "
        f"backoff {c.backoff or 0}, {c.send_queue_bytes} bytes queued{since}",
    )
