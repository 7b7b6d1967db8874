"""Connection attempts without a reply (SYN_SENT): from which host, to which listener, on which interface."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.observed import interfaces, networks, within
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.links import connections_of
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Connection, Host
from hangdoc.torch_facts.environment_names import INTERFACES

_ANY = ("0.0.0.0", "::", "*")  # noqa: S104  (what a socket is bound to, read from elsewhere)
_SECONDS = 7
"""Without a reply; a congested link loses only a SYN or two."""


class Listener(NamedTuple):
    """A process that listens."""

    host: Host
    pid: int
    namespace: str
    """Its network namespace."""
    rank: int | None
    """The rank that it is, if it is one."""


class Call(msgspec.Struct, frozen=True):
    """A connection attempt that gets no reply."""

    host: Host
    pid: int
    rank: int | None
    """The rank that calls; None for a launcher."""
    connection: Connection
    listener: Listener | None
    """The process that listens there, if that host was observed."""

    @property
    def target(self) -> str:
        """Address and port."""
        return f"{self.connection.remote_address}:{self.connection.remote_port}"

    @property
    def called(self) -> str:
        """The host of the remote address, or the address itself if that host was not observed."""
        return self.listener.host.name if self.listener is not None else self.connection.remote_address

    @property
    def wrong_address(self) -> bool:
        """Whether the listener's address is outside all networks of the caller."""
        near = networks(self.host, self.connection.namespace)
        outside = bool(near) and not any(within(self.connection.remote_address, one) for one in near)
        return self.listener is not None and outside

    @property
    def in_words(self) -> str:
        """`10.0.0.2:29500 is in SYN_SENT, 3 retries in 7 s`."""
        return f"{self.target} is in SYN_SENT, {self.connection.retransmits} retries in {self.seconds} s"

    @property
    def seconds(self) -> int:
        """For how long it has been retried, at least: the kernel waits 1, 2, 4, ... s, and since Linux 6.5 1 s for the first four
        retries (tcp_syn_linear_timeouts), which it does not count as backoff."""
        backoff = min(self.connection.backoff or 0, 16)
        return max(0, (self.connection.retransmits or 0) - backoff) + (1 << backoff) - 1


def unanswered(run: Run) -> list[Call]:
    """Connection attempts of the run's processes that were retried without a reply."""
    ranks = {(rank.host, rank.pid): rank.rank for rank in run.ranks.values()}
    calls = [Call(host, c.pid, ranks.get((host.name, c.pid)), c, None) for host, c in _connections(run, "SYN_SENT")]
    calls = [call for call in calls if call.seconds >= _SECONDS]
    listening: dict[tuple[str, int], Listener] = {}
    for host, c in _connections(run, "LISTEN") if calls else ():
        listener = Listener(host, c.pid, c.namespace, ranks.get((host.name, c.pid)))
        own = [address for one in interfaces(host, c.namespace) for address in one.addresses]
        for address in own if c.local_address in _ANY else [c.local_address]:
            listening[address, c.local_port] = listener
    ends = ((call, (call.connection.remote_address, call.connection.remote_port)) for call in calls)
    return [msgspec.structs.replace(call, listener=listening.get(end)) for call, end in ends]


def meeting(run: Run) -> Iterator[tuple[Host, tuple[Rank, ...]]]:
    """The ranks of each host that wait in a rendezvous of several hosts."""
    for host in run.hosts if several_hosts(run) else ():
        if here := tuple(rank for rank in run.on(host.name) if rank.in_rendezvous and not rank.moving):
            yield host, here


def several_hosts(run: Run) -> bool:
    """Whether the run spans more than one host. It does not if its rendezvous endpoint is a loopback address, whatever the nodes
    are called."""
    identities = [rank.process.identity for rank in run.ranks.values() if rank.process and rank.process.identity]
    local = [i.local_world_size for i in identities if i.local_world_size is not None]
    larger = run.world_size is not None and bool(local) and max(local) < run.world_size
    return len({r.host for r in run.ranks.values()}) > 1 or (larger and not is_loopback(run.endpoint[0]))


def named_interface(rank: Rank) -> tuple[str, str] | None:
    """The variable that sets the interface of a rank, and its value."""
    variables = known.environment(rank.process)
    return next(((name, variables[name]) for name in INTERFACES if variables.get(name)), None)


def _connections(run: Run, state: str) -> Iterator[tuple[Host, Connection]]:
    """The connections in a state of the run's own processes."""
    pids = {(rank.host, rank.pid) for rank in run.ranks.values()} | {(h.name, p.pid) for h, p in run.launchers}
    for host, found in connections_of(run.hosts, pids):
        for c in found:
            if c.state == state:
                yield host, c
