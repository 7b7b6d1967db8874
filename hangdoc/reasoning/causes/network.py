"""Connections without a reply: attempts to connect (SYN_SENT), and established connections that no longer deliver data."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from hangdoc.reasoning.evidence.observed import interfaces, networks, within
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Stopped, Unseen
from hangdoc.reasoning.model.kinds import Cycle, SameCall
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.links import connections_of, end, other_end
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Connection, Host

_ANY = ("0.0.0.0", "::", "*")  # noqa: S104  (what a socket is bound to, read from elsewhere)
_SECONDS = 7
"""Without a reply; a congested link loses only a SYN or two."""
_BACKOFF = 3
"""Doublings of the retransmission timer: several seconds without a reply."""


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
        outside = bool(near) and not any(within(self.connection.remote_address, network) for network in near)
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


class NoAnswer(Cause, frozen=True, kw_only=True):
    """Connection attempts within one network that get no reply."""

    NAME = "no-answer"
    calls: tuple[Call, ...]
    first: Call
    """The most telling one."""
    outgoing: str | None
    """The host that cannot reach any other host, if there is one."""


class UnreachableAddress(Cause, frozen=True, kw_only=True):
    """A rank listens on an address that its peer cannot reach."""

    NAME = "unreachable-address"
    call: Call
    listener: Listener


class DeadLink(Cause, frozen=True, kw_only=True):
    """Established connections that no longer deliver data."""

    NAME = "dead-link"
    lost: dict[int, tuple[Connection, ...]]
    """By the rank at whose end it was observed."""


# --- attempts to connect -------------------------------------------------------------------------------------------------


def find_unreachable_address(run: Run, blockage: Blockage) -> UnreachableAddress | None:
    """The first connection attempt to an address outside the caller's networks."""
    for call in _unanswered_calls(run) if spans_hosts(run) else ():
        if call.listener is not None and call.wrong_address:
            number, host = call.listener.rank, call.listener.host
            culprits = (number,) if number is not None else tuple(rank.rank for rank in run.on(host.name))
            return UnreachableAddress(call=call, listener=call.listener, culprits=culprits, ends="never")
    return None


def find_no_answer(run: Run, blockage: Blockage) -> NoAnswer | None:
    """Connection attempts within one network that get no reply: a firewall, or a broken link."""
    calls = tuple(call for call in _unanswered_calls(run) if not call.wrong_address)
    if not calls or _has_stopped_rank(run):
        return None
    callers = {call.host.name for call in calls}
    called = Counter(call.called for call in calls)
    # The host at one end of all attempts is the closed one; with one pair only, it is the side that does not reply.
    outgoing = next(iter(callers)) if len(callers) == 1 and len(called) > 1 else None
    blamed = outgoing or called.most_common(1)[0][0]
    telling = [call for call in calls if outgoing or blamed == call.called]
    # That a host cannot reach itself is weaker evidence.
    first = min(telling, key=lambda call: call.host.name == call.called)
    culprits = _ranks_on(run, blamed, calls)
    return NoAnswer(calls=calls, first=first, outgoing=outgoing, culprits=culprits, ends="never")


def spans_hosts(run: Run) -> bool:
    """Whether the run spans more than one host. It does not if its rendezvous endpoint is a loopback address, whatever the nodes
    are called."""
    identities = [rank.process.identity for rank in run.ranks.values() if rank.process and rank.process.identity]
    local = [i.local_world_size for i in identities if i.local_world_size is not None]
    larger = run.world_size is not None and bool(local) and max(local) < run.world_size
    return len({r.host for r in run.ranks.values()}) > 1 or (larger and not is_loopback(run.endpoint[0]))


def _unanswered_calls(run: Run) -> list[Call]:
    """Connection attempts of the run's processes that were retried without a reply."""
    ranks = {(rank.host, rank.pid): rank.rank for rank in run.ranks.values()}
    calls = [Call(host, c.pid, ranks.get((host.name, c.pid)), c, None) for host, c in _connections(run, "SYN_SENT")]
    calls = [call for call in calls if call.seconds >= _SECONDS]
    listening: dict[tuple[str, int], Listener] = {}
    for host, c in _connections(run, "LISTEN") if calls else ():
        listener = Listener(host, c.pid, c.namespace, ranks.get((host.name, c.pid)))
        own = [address for interface in interfaces(host, c.namespace) for address in interface.addresses]
        for address in own if c.local_address in _ANY else [c.local_address]:
            listening[address, c.local_port] = listener
    ends = ((call, (call.connection.remote_address, call.connection.remote_port)) for call in calls)
    return [msgspec.structs.replace(call, listener=listening.get(end)) for call, end in ends]


def _connections(run: Run, state: str) -> Iterator[tuple[Host, Connection]]:
    """The connections in a state of the run's own processes."""
    pids = {(rank.host, rank.pid) for rank in run.ranks.values()} | {(h.name, p.pid) for h, p in run.launchers}
    for host, connections in connections_of(run.hosts, pids):
        for c in connections:
            if c.state == state:
                yield host, c


def _ranks_on(run: Run, name: str, calls: Iterable[Call]) -> tuple[int, ...]:
    """The ranks that listen there, or all ranks of that host; the unobserved ranks if the host was not observed."""
    at_it = (call.listener for call in calls if call.listener is not None and call.called == name)
    listening = {listener.rank for listener in at_it if listener.rank is not None}
    return tuple(sorted(listening) or [rank.rank for rank in run.on(name)] or sorted(run.unseen))


# --- established connections ---------------------------------------------------------------------------------------------


def find_dead_link(run: Run, blockage: Blockage) -> DeadLink | None:
    """All connections of a run that no longer deliver data."""
    if not isinstance(blockage.kind, Cycle | SameCall | Unseen):
        return None
    dead = {number: tuple(filter(_is_dead, rank.connections)) for number, rank in run.ranks.items()}
    lost = {number: connections for number, connections in dead.items() if connections}
    if not lost or _has_stopped_rank(run):
        return None
    return DeadLink(lost=lost, culprits=tuple(_cut_off(run, lost)), ends="never")


def _is_dead(c: Connection) -> bool:
    """Whether no byte moved, and the kernel retransmits repeatedly without a reply."""
    retransmits = (c.unacked or 0) > 0 and max(c.backoff or 0, c.retransmits or 0) >= _BACKOFF
    return c.state == "ESTABLISHED" and not c.bytes_moved and retransmits


def _cut_off(run: Run, dead: dict[int, tuple[Connection, ...]]) -> list[int]:
    """Ranks at either end. The other end of a dead connection often has nothing to send and does not notice. If all connections
    lead to hosts that were not observed, the ranks that were not observed."""
    local = {address for host in run.hosts for interface in interfaces(host, None) for address in interface.addresses}
    if local and run.unseen and all(c.remote_address not in local for lost in dead.values() for c in lost):
        return sorted(run.unseen)
    lost = {other_end(c) for connections in dead.values() for c in connections}
    counted = {
        rank.rank: number
        for rank in run.ranks.values()
        if (number := sum(end(c) in lost for c in rank.connections) + len(dead.get(rank.rank, ())))
    }
    most = max(counted.values())
    # A rank at the end of all of them is cut off; with a single link, the side is unknown.
    alone = [rank for rank, number in counted.items() if number == most]
    return sorted(alone if len(alone) == 1 and len(counted) > 2 else counted)


def _has_stopped_rank(run: Run) -> bool:
    """Whether a rank is stopped: its kernel answers, but nothing reads what arrives."""
    return any(isinstance(rank.hold, Stopped) for rank in run.ranks.values())
