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

from collections.abc import Iterator

from hangdoc.diagnose import network, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Machine

CODE = "HD405"
NAME = "hostname-loopback"
EXPLAINS = ("HD401", "HD901", "HD202")


def check(run: Run) -> Iterator[Finding]:
    """One finding for each such host."""
    for host in run.hosts:
        here = [rank for rank in run.on(host.name) if network.meets(rank)]
        machine = host.machine
        if not here or not isinstance(machine, Machine) or not isinstance(machine.hostname_addresses, tuple):
            continue
        if (
            not network.several_hosts(run)
            or not all(network.loopback(a) for a in machine.hostname_addresses)
            or not machine.hostname_addresses
        ):
            continue
        exposed = [rank for rank in here if network.named_interface(rank) is None]
        if exposed:
            yield _finding(run, host.name, machine.hostname_addresses, exposed)


def _finding(run: Run, host: str, addresses: tuple[str, ...], exposed: list[Rank]) -> Finding:
    who = [rank.rank for rank in exposed]
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run),
        confidence=0.8,
        culprits=who,
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{host} resolves its own name to {', '.join(addresses)}: {words.ranks(who)} "
        f"{words.verb(who, 'tells its', 'tell their')} peers on other hosts to call themselves",
        evidence=[
            Evidence(rank=None, probe="machine", text=f"the name {host} resolves to {', '.join(addresses)} on it"),
            *words.class_evidence(exposed),
        ],
        remedy="Set GLOO_SOCKET_IFNAME to the interface that the hosts share, or mend the name in /etc/hosts.",
        commands=(f"getent hosts {host}", "ip -brief address"),
    )
