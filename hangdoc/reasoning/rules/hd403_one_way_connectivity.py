"""Connection attempts to a peer's port get no reply.

## What it finds

A rank or a torchrun agent that tries to connect to a listening port of another
one and gets no reply: the connection stays in SYN_SENT and is retried again and
again.

## Why it hangs

Gloo connects every pair of ranks on ephemeral ports. In each pair, the rank
with the lower address listens and the other one connects. An open master port
is not enough: every host must accept connections from every other host on
`net.ipv4.ip_local_port_range`. If a firewall drops the packets instead of
rejecting them, the attempt continues for minutes, and all other ranks wait in
`init_process_group`.

## Example

```sh
nft add rule inet filter input tcp dport 29500 accept
nft add rule inet filter input drop   # <- drops Gloo's ephemeral ports
```

## Use instead

```sh
# 10.0.0.0/24 holds all hosts of the run.
nft add rule inet filter input ip saddr 10.0.0.0/24 accept
nft add rule inet filter input drop
```

## How hangdoc knows

It reads the connection attempts with their retries, and the process that
listens at the other end, with its network interface.

## When it can be wrong

An overloaded host replies late; the finding needs several retries. If the host
of the listener was not observed, only the side of the caller is known. The
evidence then shows this.

## References

- tcp(7), tcp_syn_retries: https://man7.org/linux/man-pages/man7/tcp.7.html
- gloo/transport/tcp: https://github.com/pytorch/gloo
"""

from hangdoc.reasoning.causes.network import Call, NoAnswer
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import command, to_host


@about(NoAnswer)
def describe(run: Run, blockage: Blockage, cause: NoAnswer) -> Draft:
    first, outgoing = cause.first, cause.outgoing
    _, master = run.endpoint
    to_master = first.connection.remote_port == master
    ports = f"port {master}" if to_master else "ephemeral ports (sysctl net.ipv4.ip_local_port_range)"
    what = (
        f"{outgoing} gets no reply from any host that it connects to"
        if outgoing
        else f"{first.called} does not reply to {first.host.name}"
    )
    who = f"rank {first.rank}" if first.rank is not None else f"torchrun (pid {first.pid})"
    listens = ", although a process listens there" if first.listener is not None else ""
    address = first.connection.remote_address
    return Draft(
        confidence=0.9 if first.listener is not None else 0.7,
        summary=f"{what}: {who} cannot connect to {first.target}{listens} (a firewall drops the packets, or the network is down)",
        evidence=[*(_evidence(call) for call in cause.calls[:8]), *words.class_evidence(run.waiting)],
        remedy=f"Allow incoming connections to {'every host' if outgoing else first.called} on {ports} from every host of the "
        f"run.{' Gloo also needs ephemeral ports in both directions.' if to_master else ''}",
        commands=(
            *to_host(
                "nc",
                "-vz",
                "-w",
                "3",
                address,
                str(first.connection.remote_port),
                address=address,
                host=first.host.name,
            ),
            command("nft", "list", "ruleset", host=first.called),
        ),
    )


def _evidence(call: Call) -> Evidence:
    c = call.connection
    there = "that host was not observed"
    if call.listener is not None:
        rank, pid = call.listener.rank, call.listener.pid
        interface = observed.interface_with(call.listener.host, call.listener.namespace, c.remote_address)
        on = f" on {interface.name}" if interface is not None else ""
        there = f"{f'rank {rank}' if rank is not None else f'pid {pid}'} listens there{on}"
    return Evidence(
        call.rank,
        "sockets",
        f"on {call.host.name}, the connection from {c.local_address}:{c.local_port} to {call.in_words}; {there}",
    )
