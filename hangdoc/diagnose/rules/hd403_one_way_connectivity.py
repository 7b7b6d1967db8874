"""A peer's port cannot be reached: calls to it are never answered.

## What it finds

A rank, or an agent of torchrun, that calls another one's listening port and gets no answer: SYN_SENT, repeated again and
again, towards a socket that really listens there.

## Why it hangs

Gloo connects every pair of ranks on ephemeral ports: of two, the one with the lower address listens and the other calls.
That the master port is open is not enough; every host must take calls from every other on
`net.ipv4.ip_local_port_range`. A firewall that drops (instead of refusing) lets the caller try for minutes, and everybody
else waits with it in `init_process_group`.

## Evidence

The calls with their repetitions, and who listens at the other end, on which interface.

## What to do

Open the ports between the hosts of the run in both directions, on the interface that the addresses belong to.

## When it would be wrong

A host that is merely overloaded answers late; it takes several repetitions to be named. Where the listener was not looked
at, only the caller's side is known, and the finding says so.

## References

- tcp(7), tcp_syn_retries: https://man7.org/linux/man-pages/man7/tcp.7.html
- gloo/transport/tcp: https://github.com/pytorch/gloo
"""

from collections import Counter
from collections.abc import Iterator

from hangdoc.diagnose import network, words
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.network import Call
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural

CODE = "HD403"
NAME = "one-way-connectivity"
EXPLAINS = ("HD401", "HD202", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """One finding for all unanswered calls."""
    calls = [call for call in network.unanswered(run) if _same_network(call)]
    if calls and not any(rank.state == "stopped" for rank in run.ranks.values()):
        yield _finding(run, calls)


def _same_network(call: Call) -> bool:
    """Whether the caller is in the network that it calls, or nothing is known of it: otherwise the address is wrong (HD404)."""
    known = network.networks(call.host, call.connection.namespace)
    if call.listener is None or not known:
        return True
    return any(network.within(call.connection.remote_address, one) for one in known)


def _finding(run: Run, calls: list[Call]) -> Finding:
    callers = {call.host.name for call in calls}
    called = Counter(call.listener.host.name if call.listener else call.connection.remote_address for call in calls)
    # Whoever is at one end of all calls is closed; with one pair only it is the side that does not answer.
    closed = called.most_common(1)[0][0]
    outgoing = len(callers) == 1 and len(called) > 1
    blamed = next(iter(callers)) if outgoing else closed
    of_it = [call for call in calls if outgoing or blamed in (_name(call), call.connection.remote_address)]
    first = min(of_it, key=lambda call: call.host.name == _name(call))  # a host that can't reach itself says less
    master = natural((run.master or "").rpartition(":")[2])
    ports = (
        f"port {master}"
        if first.connection.remote_port == master
        else "ephemeral ports (sysctl net.ipv4.ip_local_port_range)"
    )
    culprits = _ranks_on(run, blamed, calls)
    what = (
        f"{blamed} gets no answer from any host it calls" if outgoing else f"{blamed} does not answer {first.host.name}"
    )
    listens = " though it listens there" if first.listener is not None else ""
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.9 if first.listener is not None else 0.7,
        culprits=culprits,
        victims=(rank.rank for rank in run.waiting() if rank.rank not in culprits),
        summary=f"{what}: {_who(run, first)} calls {first.target} in vain{listens} (a firewall drops it, or the way is cut)",
        evidence=[_evidence(run, call) for call in calls[:8]] + words.class_evidence(run.waiting()),
        remedy=f"Let {blamed if not outgoing else 'the hosts'} take calls on {ports} from every host of the run."
        + (" Gloo needs ephemeral ports in both directions besides." if first.connection.remote_port == master else ""),
        commands=(
            f"nc -vz -w 3 {first.connection.remote_address} {first.connection.remote_port}   # on {first.host.name}",
            f"nft list ruleset   # on {_name(first)}",
        ),
    )


def _name(call: Call) -> str:
    return call.listener.host.name if call.listener is not None else call.connection.remote_address


def _ranks_on(run: Run, name: str, calls: list[Call]) -> list[int]:
    """The ranks that listen there, or all of that host; those that nobody saw where the host was not looked at."""
    listening = {
        rank.rank
        for call in calls
        if call.listener is not None
        and call.listener.host.name == name
        and (rank := network.rank_of(run, call.listener.host, call.listener.pid)) is not None
    }
    here = [rank.rank for rank in run.on(name)]
    return sorted(listening) or here or sorted(run.unseen)


def _who(run: Run, call: Call) -> str:
    rank = network.rank_of(run, call.host, call.pid)
    return f"rank {rank.rank}" if rank is not None else f"torchrun (pid {call.pid})"


def _evidence(run: Run, call: Call) -> Evidence:
    rank = network.rank_of(run, call.host, call.pid)
    c = call.connection
    listener = network.rank_of(run, call.listener.host, call.listener.pid) if call.listener is not None else None
    there = "nobody looked at that host"
    if call.listener is not None:
        interface = network.interface_with(call.listener.host, call.listener.namespace, c.remote_address)
        on = f" on {interface.name}" if interface is not None else ""
        there = f"{f'rank {listener.rank}' if listener is not None else f'pid {call.listener.pid}'} listens there{on}"
    return Evidence(
        rank=rank.rank if rank is not None else None,
        probe="sockets",
        text=f"{call.host.name}: {c.local_address}:{c.local_port} to {call.target} is SYN_SENT, repeated "
        f"{c.retransmits} times in {call.seconds} s; {there}",
    )
