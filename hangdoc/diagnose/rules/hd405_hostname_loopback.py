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

import ipaddress
from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run, environment_of
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Machine

CODE = "HD405"
NAME = "hostname-loopback"
EXPLAINS = ("HD401", "HD901", "HD202")


def check(run: Run) -> Iterator[Finding]:
    """One finding for each such host."""
    for host in run.hosts:
        here = [rank for rank in run.ranks.values() if rank.host == host.name and _meets(rank)]
        machine = host.machine
        if not here or not isinstance(machine, Machine) or not isinstance(machine.hostname_addresses, tuple):
            continue
        if (
            not _several_hosts(run)
            or not all(_loopback(a) for a in machine.hostname_addresses)
            or not machine.hostname_addresses
        ):
            continue
        exposed = [rank for rank in here if not _names_interface(rank)]
        if exposed:
            yield _finding(run, host.name, machine.hostname_addresses, exposed)


def _meets(rank: Rank) -> bool:
    return rank.waits and not rank.moving and rank.wait is not None and rank.wait.kind == "rendezvous"


def _several_hosts(run: Run) -> bool:
    identities = [rank.process.identity for rank in run.ranks.values() if rank.process and rank.process.identity]
    local = [i.local_world_size for i in identities if i.local_world_size is not None]
    return len({r.host for r in run.ranks.values()}) > 1 or (
        run.world_size is not None and bool(local) and max(local) < run.world_size and not _master_is_here(run)
    )


def _master_is_here(run: Run) -> bool:
    """Whether the meeting point is a loopback address: then all ranks are on one host, whatever their nodes are called."""
    return run.master is not None and (_loopback(run.master.rpartition(":")[0]) or run.master.startswith("localhost:"))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _names_interface(rank: Rank) -> bool:
    variables = environment_of(rank.process) if rank.process is not None else {}
    return "GLOO_SOCKET_IFNAME" in variables or "TP_SOCKET_IFNAME" in variables


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
