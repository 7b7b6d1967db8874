"""The ranks spend most of each step transferring data over a slow link.

## What it finds

A run that makes progress, whose ranks wait most of the time for data on a link
between hosts.

## Why it hangs

It does not hang. Every step sends as many bytes as the model has gradients. A
slow, shared or wrong link (a management network, a tunnel, a cable at a tenth
of its rate) makes the steps as long as the transfer.

## Example

```sh
export GLOO_SOCKET_IFNAME=eth0   # <- the 1 Gbit/s management network
torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
```

## Use instead

```sh
ethtool eth1 | grep Speed        # 100000Mb/s
export GLOO_SOCKET_IFNAME=eth1   # and NCCL_SOCKET_IFNAME
torchrun --nnodes 2 --node-rank 0 --master-addr node0-eth1 train.py
```

Measure the rate between the hosts with `iperf3`. To send less data, use
gradient accumulation, a bf16 compression hook, or larger batches.

## How hangdoc knows

For the busiest connection, it measures the share of time with unsent or
unacknowledged data, the bytes transferred, and the delivery rate that the
kernel reports. By torch's record of calls, the ranks arrive together: a rank that
comes late also makes the others wait. Without a record it is inferred from how
long the ranks compute.

## When it can be wrong

Connections over loopback are not measured, because they use no network link.

## References

- ss(8), busy, delivery_rate: https://man7.org/linux/man-pages/man8/ss.8.html
- DDP communication hooks:
  https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning import call_words, pace, words
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.rules.draft import Draft
from hangdoc.snapshot import Connection

_BUSY, _COMPUTING = 0.6, 0.4
_FAST_BYTES = 1_000_000_000
"""A link that delivers this many bytes per second is not slow, however busy it is."""


def check(run: Run) -> Iterator[Draft]:
    """One finding for the busiest connection of a run that mostly waits for it."""
    window = max((host.window_seconds for host in run.hosts), default=0.0)
    computing = max((rank.training_share for rank in run.living if rank.training_share is not None), default=1.0)
    links = [(rank, c) for rank in run.living for c in rank.connections if _is_slow(c)]
    measured = pace.pace_of(run)
    late = pace.waited_share(measured) if measured is not None else None
    if window < 0.3 or computing > _COMPUTING or not links or (late is not None and late > _COMPUTING):
        return
    rank, busiest = max(links, key=lambda link: link[1].busy_ms or 0)
    share = (busiest.busy_ms or 0) / 1000 / window
    if share >= _BUSY:
        yield _draft(rank, busiest, share, (busiest.bytes_moved or 0) / window, computing, late)


def _is_slow(c: Connection) -> bool:
    """Whether it transferred bytes over a network link, and slowly."""
    over_link = bool(c.bytes_moved) and not c.local_address.startswith(("127.", "::1"))
    return over_link and (c.delivery_rate_bytes or 0) < _FAST_BYTES


def _draft(rank: Rank, c: Connection, share: float, passed: float, computing: float, late: float | None) -> Draft:
    rate = f", delivery rate {_rate(c.delivery_rate_bytes)}" if c.delivery_rate_bytes else ""
    return Draft(
        confidence=0.8,
        summary=f"communication dominates the steps: rank {rank.rank}'s link to {c.remote_address} was busy "
        f"{min(share, 1.0):.0%} of the time at {_rate(passed)}; the ranks computed at most {computing:.0%} of the time",
        evidence=[
            _arrival(late),
            Evidence(
                rank.rank,
                "sockets",
                f"{words.ends(c)}: {c.bytes_moved} bytes transferred{rate}, {c.send_queue_bytes} bytes queued, "
                f"round trip {(c.rtt_us or 0) / 1000:.1f} ms",
            ),
        ],
        remedy="Use the fastest interface between the hosts, or send less data: gradient accumulation, compression, larger "
        "batches.",
        commands=(f"ip route get {c.remote_address}", f"iperf3 -c {c.remote_address}   # with `iperf3 -s` there"),
    )


def _arrival(late: float | None) -> Evidence:
    if late is None:
        return Evidence(
            None, "cpu", "that the ranks wait for data, and not for a rank, is inferred: no record of calls"
        )
    return Evidence(None, call_words.PROBE, f"the ranks waited for a later rank only {late:.0%} of the time")


def _rate(bytes_a_second: float) -> str:
    bits = bytes_a_second * 8
    return f"{bits / 1e9:.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.1f} Mbit/s"
