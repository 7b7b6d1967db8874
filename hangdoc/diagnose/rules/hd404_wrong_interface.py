"""A rank was told to use an interface on which its peers can't reach it.

## What it finds

A run over several hosts in which GLOO_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME) names an interface that is absent, down or
loopback, or in which a rank listens on an address that lies in no network of the host that calls it: docker0, a VPN, a
second card without a cable.

## Why it hangs

A rank publishes the address of its interface in the store, and peers call it there. A private address of that host leads
nowhere, or to another machine. Of two ranks the one with the lower address listens, so that a wrong interface on the
other one may do no harm.

## Evidence

The variable, the interface with its addresses, the unanswered calls, and the networks that the hosts share.

## What to do

Set GLOO_SOCKET_IFNAME on that host to the interface that has an address in the shared network.

## When it would be wrong

Where routers join the networks, an address outside of the caller's own networks is reachable; the finding is made only of
calls that are not answered, or of an interface that can't work between hosts.

## References

- torch.distributed, choosing the network interface: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import network, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.network import Call
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Host

CODE = "HD404"
NAME = "wrong-interface"
EXPLAINS = ("HD401", "HD403", "HD405", "HD202", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """One finding for each host with a wrong interface."""
    if not network.several_hosts(run):
        return
    found = set()
    for call in network.unanswered(run):
        if call.listener is None or call.listener.host.name in found:
            continue
        known = network.networks(call.host, call.connection.namespace)
        if known and not any(network.within(call.connection.remote_address, one) for one in known):
            found.add(call.listener.host.name)
            yield _unreachable(run, call, call.listener.host)
    for host in run.hosts:
        here = [rank for rank in run.on(host.name) if network.meets(rank)]
        told = next(((rank, named) for rank in here if (named := network.named_interface(rank))), None)
        if told is not None and host.name not in found and (why := _unusable(told[0], host, told[1][1])):
            yield _named(run, host, here, told[1], why)


def _unusable(rank: Rank, host: Host, name: str) -> str | None:
    """Why no peer on another host can call this interface; None where it may, or where a list or a prefix is given."""
    known = network.interfaces(host, network.namespace_of(rank.process))
    if not known or any(c in name for c in ",^="):
        return None
    interface = next((one for one in known if one.name == name), None)
    if interface is None:
        return None if any(one.name.startswith(name) for one in known) else "does not exist there"
    if interface.addresses and all(network.loopback(address) for address in interface.addresses):
        return "is loopback"
    if not interface.up:
        return "is down"
    return None if interface.addresses else "has no address"


def _named(run: Run, host: Host, here: list[Rank], named: tuple[str, str], why: str) -> Finding:
    culprits = [rank.rank for rank in here]
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run),
        confidence=0.9,
        culprits=culprits,
        victims=(rank.rank for rank in run.waiting() if rank.rank not in culprits),
        summary=f"{named[0]}={named[1]} on {host.name}, and {named[1]} {why}: no other host can reach {words.ranks(culprits)}",
        evidence=[
            Evidence(rank=None, probe="machine", text=f"{host.name} has {_listed(host)}"),
            *words.class_evidence(here),
        ],
        remedy=f"Set {named[0]} on {host.name} to the interface that the hosts share.",
        commands=(f"ip -brief address   # on {host.name}",),
    )


def _unreachable(run: Run, call: Call, host: Host) -> Finding:
    address = call.connection.remote_address
    there = call.listener.namespace if call.listener is not None else None
    interface = network.interface_with(host, there, address)
    listener = network.rank_of(run, call.listener.host, call.listener.pid) if call.listener is not None else None
    culprits = [listener.rank] if listener is not None else [r.rank for r in run.on(host.name)]
    callers = network.networks(call.host, call.connection.namespace)
    shared = sorted({name for one, name in network.networks(host, there).items() if one in callers})
    on = f"{interface.name}, " if interface is not None else ""
    told = network.named_interface(listener) if listener is not None else None
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.93,
        culprits=culprits,
        victims=(rank.rank for rank in run.waiting() if rank.rank not in culprits),
        summary=f"{words.ranks(culprits)} on {host.name} {words.verb(culprits, 'listens', 'listen')} on {address} ({on}in no "
        f"network of {call.host.name}), which calls it in vain"
        + (f"; the hosts share the network of {', '.join(shared)}" if shared else ""),
        evidence=[
            *([Evidence(rank=culprits[0], probe="environment", text=f"{told[0]}={told[1]}")] if told else []),
            Evidence(
                rank=None, probe="sockets",
                text=f"{call.host.name}: a call to {call.target} is SYN_SENT, repeated {call.connection.retransmits} times "
                f"in {call.seconds} s",
            ),
            *(Evidence(rank=None, probe="machine", text=f"{one.name} has {_listed(one)}") for one in (host, call.host)),
            *words.class_evidence(run.waiting()),
        ],
        remedy=f"Set GLOO_SOCKET_IFNAME on {host.name} to the interface that the hosts share"
        + (f": {shared[0]}." if shared else "."),
        commands=(f"ip -brief address   # on {host.name}", f"ip route get {address}   # on {call.host.name}"),
    )  # fmt: skip


def _listed(host: Host) -> str:
    shown = (
        f"{one.name} {' '.join(a for a in one.addresses if ':' not in a) or 'without an address'}{'' if one.up else ' (down)'}"
        for one in network.interfaces(host, None)
    )
    return ", ".join(list(shown)[:12])
