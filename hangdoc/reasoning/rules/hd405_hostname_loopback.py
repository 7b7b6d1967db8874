"""A host resolves its own name to loopback and publishes that address.

## What it finds

A run over several hosts whose ranks wait in the rendezvous, on a host whose own
name resolves to 127.x.x.x or ::1.

## Why it hangs

Gloo publishes the address of the host name, unless an interface is set.
Debian's installer writes `127.0.1.1 HOSTNAME` to /etc/hosts. The peers on other
hosts then get a loopback address and connect to themselves, or to nothing.

## Example

```text
# /etc/hosts on node0
127.0.0.1   localhost
127.0.1.1   node0        # <- node0 publishes 127.0.1.1
```

## Use instead

```text
# /etc/hosts on node0
127.0.0.1   localhost
10.0.0.1    node0
```

Or set `GLOO_SOCKET_IFNAME` (and `NCCL_SOCKET_IFNAME`) to the interface that the
hosts share.

## How hangdoc knows

It resolves the host name on that host, compares the size of the run with the
number of ranks there, and reads the stacks in the rendezvous.
GLOO_SOCKET_IFNAME is not set.

## When it can be wrong

If all ranks are on one host, a loopback address is correct, and the finding
does not appear.

## References

- torch.distributed, network interfaces:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.reasoning.causes.launches import LoopbackName
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import command, to_host


@about(LoopbackName)
def describe(run: Run, blockage: Blockage, cause: LoopbackName) -> Draft:
    host, addresses = cause.host, ", ".join(cause.addresses)
    return Draft(
        confidence=0.8,
        summary=f"{host} resolves its own name to {addresses}; {words.do(blockage.blamed, 'publishes', 'publish')} "
        "this loopback address, which no other host can reach",
        evidence=[
            Evidence(None, "machine", f"on {host}, the name {host} resolves to {addresses}"),
            *map(words.stack_evidence, cause.ranks[:4]),
        ],
        remedy="Set GLOO_SOCKET_IFNAME to the interface that the hosts share, or correct the name in /etc/hosts.",
        commands=(*to_host("getent", "hosts", host, address=host), command("ip", "-brief", "address")),
    )
