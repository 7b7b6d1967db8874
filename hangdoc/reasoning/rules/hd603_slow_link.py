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
kernel reports. It also measures how long the ranks compute, and how far apart
they make their calls, by torch's record.

## When it can be wrong

Connections over loopback are not measured, because they use no network link.

## References

- ss(8), busy, delivery_rate: https://man7.org/linux/man-pages/man8/ss.8.html
- DDP communication hooks:
  https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from collections.abc import Iterator

from hangdoc.phrases import frequency, milliseconds
from hangdoc.reasoning.causes import pace
from hangdoc.reasoning.causes.pace import SlowLink, find_slow_link
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import call_words, words
from hangdoc.reasoning.text.next_steps import to_host


def check(run: Run) -> Iterator[Draft]:
    """One finding for the busiest connection of a run that mostly waits for it."""
    if (link := find_slow_link(run)) is not None:
        yield _draft(run, link)


def _draft(run: Run, link: SlowLink) -> Draft:
    c = link.connection
    rate = f", delivery rate {_rate(c.delivery_rate_bytes)}" if c.delivery_rate_bytes else ""
    return Draft(
        confidence=0.8,
        summary=f"communication dominates the steps: rank {link.rank.rank}'s link to {c.remote_address} was busy "
        f"{min(link.busy_share, 1.0):.0%} of the time at {_rate(link.bytes_per_second)}; the ranks computed at most "
        f"{link.computing_share:.0%} of the time",
        evidence=[
            _calls(run),
            Evidence(
                link.rank.rank,
                "sockets",
                f"{words.ends(c)}: {c.bytes_moved} bytes transferred{rate}, {c.send_queue_bytes} bytes queued, "
                f"round trip {(c.rtt_us or 0) / 1000:.1f} ms",
            ),
        ],
        remedy="Use the fastest interface between the hosts, or send less data: gradient accumulation, compression, larger "
        "batches.",
        commands=(
            *to_host("ip", "route", "get", c.remote_address, address=c.remote_address),
            *to_host("iperf3", "-c", c.remote_address, address=c.remote_address, note="with `iperf3 -s` there"),
        ),
    )


def _calls(run: Run) -> Evidence:
    """How often the ranks call, and how far apart."""
    measured = pace.pace_of(run)
    if measured is None or measured.slowest is None:
        text = "that the ranks wait for data, and not for a rank, is inferred: no record of calls"
        return Evidence(None, "cpu", text)
    rates = pace.call_rates(run, pace.paces_of(run))
    late = milliseconds(max(0.0, measured.slowest.median_seconds))
    text = f"{frequency(rates.most)} calls per second; the latest rank makes its calls {late} after the others"
    return Evidence(None, call_words.PROBE, text)


def _rate(bytes_a_second: float) -> str:
    bits = bytes_a_second * 8
    return f"{bits / 1e9:.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.1f} Mbit/s"
