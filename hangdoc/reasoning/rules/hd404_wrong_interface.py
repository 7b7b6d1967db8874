"""A rank uses a network interface on which its peers cannot reach it.

## What it finds

A run over several hosts in which GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names
an interface that is missing, down or loopback. Or a rank that listens on an
address outside all networks of the host that connects to it: docker0, a VPN, an
unused network card.

## Why it hangs

A rank publishes the address of its interface in the store, and its peers
connect to that address. An address that is private to one host leads nowhere or
to another machine. In each pair the rank with the lower address listens, so a
wrong interface on the other rank may go unnoticed.

## Example

```sh
export GLOO_SOCKET_IFNAME=docker0   # <- no peer can reach 172.17.0.1
torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
```

## Use instead

```sh
ip -brief address                   # which network do all hosts share?
export GLOO_SOCKET_IFNAME=eth0
torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py
```

## How hangdoc knows

It reads the variable, the addresses of each interface, the connection attempts
without a reply, and the networks that the hosts share.

## When it can be wrong

Routers may make an address outside the caller's own networks reachable. The
finding therefore needs connection attempts without a reply, or an interface
that cannot work between hosts.

## References

- torch.distributed, choosing the network interface:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes import network
from hangdoc.reasoning.causes.meeting import UnreachableAddress, UnusableInterface
from hangdoc.reasoning.model import Run
from hangdoc.snapshot import Host

CODE = "HD404"
NAME = "wrong-interface"
ABOUT = (UnreachableAddress, UnusableInterface)


def say(run: Run, blockage: Blockage) -> Finding:
    """A host whose ranks use the wrong network interface."""
    cause = blockage.cause
    if isinstance(cause, UnreachableAddress):
        return _unreachable(run, blockage, cause)
    assert isinstance(cause, UnusableInterface)  # noqa: S101  (see ABOUT)
    return _named(blockage, cause)


def _named(blockage: Blockage, cause: UnusableInterface) -> Finding:
    host, value = cause.host, cause.value
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9,
        summary=f"{cause.variable}={value} on {host.name}, but {value} {cause.why}; no other host can reach "
        f"{words.ranks(blockage.blamed)}",
        evidence=[
            Evidence(rank=None, probe="machine", text=f"interfaces of {host.name}: {_listed(host)}"),
            *(words.stack_evidence(rank) for rank in cause.ranks[:4]),
        ],
        remedy=f"Set {cause.variable} on {host.name} to the interface that the hosts share.",
        commands=(f"ip -brief address   # on {host.name}",),
    )


def _unreachable(run: Run, blockage: Blockage, cause: UnreachableAddress) -> Finding:
    call, host, culprits = cause.call, cause.host, blockage.blamed
    address = call.connection.remote_address
    there = call.listener.namespace if call.listener is not None else None
    interface = network.interface_with(host, there, address)
    listener = network.rank_of(run, host, call.listener.pid) if call.listener is not None else None
    callers = network.networks(call.host, call.connection.namespace)
    shared = sorted({name for one, name in network.networks(host, there).items() if one in callers})
    on = f" ({interface.name})" if interface is not None else ""
    named = network.named_interface(listener) if listener is not None else None
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.93,
        summary=f"{words.ranks(culprits)} on {host.name} {words.verb(culprits, 'listens', 'listen')} on {address}{on}, an "
        f"address that {call.host.name} cannot reach"
        + (f"; both hosts are in the network of {', '.join(shared)}" if shared else ""),
        evidence=[
            *([Evidence(rank=culprits[0], probe="environment", text=f"{named[0]}={named[1]}")] if named else []),
            Evidence(
                rank=None, probe="sockets",
                text=f"on {call.host.name}, the connection to {call.target} is in SYN_SENT, "
                f"{call.connection.retransmits} retries in {call.seconds} s",
            ),
            *(
                Evidence(rank=None, probe="machine", text=f"interfaces of {one.name}: {_listed(one)}")
                for one in (host, call.host)
            ),
            *words.class_evidence(run.waiting),
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
