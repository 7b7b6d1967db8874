"""This host's name resolves to loopback, so peers were told to call themselves.

## What it finds

A run over several hosts whose ranks stand in the rendezvous, on a host whose own name resolves to 127.x.x.x or ::1.

## Why it hangs

Gloo publishes the address that the host's name resolves to, unless an interface is named. Where /etc/hosts says
`127.0.1.1 HOSTNAME`, as Debian's installer writes it, the peers on other hosts get a loopback address and connect to
themselves, or to nobody.

## Evidence

What the name resolves to on that host, the run's size against the ranks there, the stacks in the rendezvous, and that no
GLOO_SOCKET_IFNAME is set.

## What to do

Set GLOO_SOCKET_IFNAME (NCCL_SOCKET_IFNAME) to the interface that the hosts share, or mend /etc/hosts.

## When it would be wrong

Where all ranks are on one host, loopback is right; the finding is then not made.

## References

- torch.distributed, network interfaces: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes.meeting import LoopbackName
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD405"
NAME = "hostname-loopback"
ABOUT = (LoopbackName,)


def say(run: Run, blockage: Blockage) -> Finding:
    """A host whose ranks publish a loopback address."""
    cause = blockage.cause
    assert isinstance(cause, LoopbackName)  # noqa: S101  (see ABOUT)
    host, addresses, who = cause.host, ", ".join(cause.addresses), blockage.blamed
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.8,
        summary=f"{host} resolves its own name to {addresses}; {words.ranks(who)} {words.verb(who, 'publishes', 'publish')} "
        "this loopback address, which no other host can reach",
        evidence=[
            Evidence(rank=None, probe="machine", text=f"on {host}, the name {host} resolves to {addresses}"),
            *(words.stack_evidence(rank) for rank in cause.ranks[:4]),
        ],
        remedy="Set GLOO_SOCKET_IFNAME to the interface that the hosts share, or correct the name in /etc/hosts.",
        commands=(f"getent hosts {host}", "ip -brief address"),
    )
