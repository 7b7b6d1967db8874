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

from hangdoc.reasoning.causes.launches import UnusableInterface, named_interface
from hangdoc.reasoning.causes.network import UnreachableAddress
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import command, to_host
from hangdoc.snapshot import Host
from hangdoc.torch_facts.environment_names import GLOO_INTERFACE


@about(UnusableInterface)
def _describe_interface(run: Run, blockage: Blockage, cause: UnusableInterface) -> Draft:
    host, value = cause.host, cause.value
    return Draft(
        confidence=0.9,
        summary=f"{cause.variable}={value} on {host.name}, but {value} {cause.why}; no other host can reach "
        f"{words.ranks(blockage.blamed)}",
        evidence=[_interfaces(host), *map(words.stack_evidence, cause.ranks[:4])],
        remedy=f"Set {cause.variable} on {host.name} to the interface that the hosts share.",
        commands=(command("ip", "-brief", "address", host=host.name),),
    )


@about(UnreachableAddress)
def _describe_address(run: Run, blockage: Blockage, cause: UnreachableAddress) -> Draft:
    call, (host, _, namespace, rank) = cause.call, cause.listener
    address = call.connection.remote_address
    interface = observed.interface_with(host, namespace, address)
    on = f" ({interface.name})" if interface is not None else ""
    callers = observed.networks(call.host, call.connection.namespace)
    shared = sorted({name for network, name in observed.networks(host, namespace).items() if network in callers})
    both = f"; both hosts are in the network of {', '.join(shared)}" if shared else ""
    named = named_interface(run.ranks[rank]) if rank is not None else None
    return Draft(
        confidence=0.93,
        summary=f"{words.ranks(blockage.blamed)} on {host.name} {words.verb(blockage.blamed, 'listens', 'listen')} on "
        f"{address}{on}, an address that {call.host.name} cannot reach{both}",
        evidence=[
            *([Evidence(blockage.blamed[0], "environment", f"{named[0]}={named[1]}")] if named else []),
            Evidence(None, "sockets", f"on {call.host.name}, the connection to {call.in_words}"),
            _interfaces(host),
            _interfaces(call.host),
            *words.class_evidence(run.waiting),
        ],
        remedy=f"Set {named[0] if named else GLOO_INTERFACE} on {host.name} to the interface that the hosts share"
        + (f": {shared[0]}." if shared else "."),
        commands=(
            command("ip", "-brief", "address", host=host.name),
            *to_host("ip", "route", "get", address, address=address, host=call.host.name),
        ),
    )


def _interfaces(host: Host) -> Evidence:
    shown = []
    for interface in observed.interfaces(host, None)[:12]:
        numbers = " ".join(address for address in interface.addresses if ":" not in address) or "without an address"
        shown.append(f"{interface.name} {numbers}{'' if interface.up else ' (down)'}")
    return Evidence(None, "machine", f"interfaces of {host.name}: {', '.join(shown)}")
