"""Why the rendezvous does not complete: another process on the master port, or hosts that cannot reach each other."""

from collections import Counter
from collections.abc import Iterable

from hangdoc.reasoning.causes import network
from hangdoc.reasoning.causes.network import Call
from hangdoc.reasoning.evidence import observed as addresses
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Stopped
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Host, Listener, Machine


class PortTaken(Cause, frozen=True, kw_only=True):
    """A process of another run or program listens on the master port."""

    NAME = "port-taken"
    host: str
    listener: Listener


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
    listener: network.Listener


class UnusableInterface(Cause, frozen=True, kw_only=True):
    """A rank uses an interface that no peer on another host can reach."""

    NAME = "unusable-interface"
    host: Host
    ranks: tuple[Rank, ...]
    variable: str
    value: str
    why: str


class LoopbackName(Cause, frozen=True, kw_only=True):
    """A host resolves its own name to loopback."""

    NAME = "loopback-name"
    host: str
    addresses: tuple[str, ...]
    ranks: tuple[Rank, ...]


# --- the port ----------------------------------------------------------------------------------------------------------


def port_taken(run: Run) -> PortTaken | None:
    """A process of another run or program that listens at the rendezvous endpoint."""
    _, port = run.endpoint
    for host in _meeting_hosts(run) if port is not None else ():
        if not (listeners := [one for one in known.listeners(host) if one.port == port and one.pid is not None]):
            continue
        ours = _own(run, host)
        namespaces = {p.namespaces.get("net") for p in host.processes if p.pid in ours or host is run.meeting_host}
        for listener in listeners:
            if listener.pid not in ours and listener.namespace in namespaces:
                # Rank 0 serves the store, unless its launcher does. A rank that cannot bind the port ends.
                gone = 0 in run.unseen or (0 in run.ranks and run.ranks[0].label == "dead")
                return PortTaken(
                    host=host.name, listener=listener, culprits=(0,) if gone and run.ranks else (), ends="never"
                )
    return None


def _meeting_hosts(run: Run) -> tuple[Host, ...]:
    """The hosts of the run, and the host of the rendezvous endpoint, even without a process of the run."""
    meeting = run.meeting_host
    return run.hosts if meeting is None or meeting in run.hosts else (*run.hosts, meeting)


def _own(run: Run, host: Host) -> set[int]:
    """Pids of a host that are the run's: ranks, what started them, and what they started."""
    mine = {launcher.pid for place, launcher in run.launchers if place.name == host.name}
    mine |= {p for r in run.on(host.name) if r.process is not None for p in (r.pid, r.process.owner) if p is not None}
    return mine | {process.pid for process in host.processes if process.owner in mine}


# --- the way between the hosts -----------------------------------------------------------------------------------------


def unreachable_address(run: Run) -> UnreachableAddress | None:
    """The first connection attempt to an address outside the caller's networks."""
    for call in network.unanswered(run) if network.several_hosts(run) else ():
        if call.listener is not None and call.wrong_address:
            number, host = call.listener.rank, call.listener.host
            culprits = (number,) if number is not None else tuple(rank.rank for rank in run.on(host.name))
            return UnreachableAddress(call=call, listener=call.listener, culprits=culprits, ends="never")
    return None


def unusable_interface(run: Run) -> UnusableInterface | None:
    """The first host whose ranks were given such an interface."""
    for host, here in network.meeting(run):
        for rank in here:
            if (named := network.named_interface(rank)) is None:
                continue
            if (why := _unusable(rank, host, named[1])) is None:
                break  # one rank speaks for its host
            culprits = tuple(rank.rank for rank in here)
            return UnusableInterface(
                host=host, ranks=here, variable=named[0], value=named[1], why=why, culprits=culprits
            )
    return None


def _unusable(rank: Rank, host: Host, name: str) -> str | None:
    """Why no peer on another host can reach this interface; None if it may, or if a list or a prefix is given."""
    there = addresses.interfaces(host, addresses.namespace_of(rank.process))
    if not there or any(c in name for c in ",^="):
        return None
    interface = next((one for one in there if one.name == name), None)
    if interface is None:
        return None if any(one.name.startswith(name) for one in there) else "does not exist there"
    if interface.addresses and all(addresses.loopback(address) for address in interface.addresses):
        return "is a loopback interface"
    if not interface.up:
        return "is down"
    return None if interface.addresses else "has no address"


def loopback_name(run: Run) -> LoopbackName | None:
    """The first host whose ranks publish the loopback address of its name."""
    for host, here in network.meeting(run):
        named = host.machine.hostname_addresses if isinstance(host.machine, Machine) else None
        exposed = tuple(rank for rank in here if network.named_interface(rank) is None)
        if exposed and isinstance(named, tuple) and named and all(map(addresses.loopback, named)):
            culprits = tuple(rank.rank for rank in exposed)
            return LoopbackName(host=host.name, addresses=named, ranks=exposed, culprits=culprits)
    return None


def no_answer(run: Run) -> NoAnswer | None:
    """Connection attempts within one network that get no reply: a firewall, or a broken link."""
    calls = tuple(call for call in network.unanswered(run) if not call.wrong_address)
    if not calls or any(isinstance(rank.hold, Stopped) for rank in run.ranks.values()):
        return None
    callers = {call.host.name for call in calls}
    called = Counter(call.called for call in calls)
    # The host at one end of all attempts is the closed one; with one pair only, it is the side that does not reply.
    outgoing = next(iter(callers)) if len(callers) == 1 and len(called) > 1 else None
    blamed = outgoing or called.most_common(1)[0][0]
    of_it = [call for call in calls if outgoing or blamed == call.called]
    # That a host cannot reach itself is weaker evidence.
    first = min(of_it, key=lambda call: call.host.name == call.called)
    culprits = _ranks_on(run, blamed, calls)
    return NoAnswer(calls=calls, first=first, outgoing=outgoing, culprits=culprits, ends="never")


def _ranks_on(run: Run, name: str, calls: Iterable[Call]) -> tuple[int, ...]:
    """The ranks that listen there, or all ranks of that host; the unobserved ranks if the host was not observed."""
    at_it = (call.listener for call in calls if call.listener is not None and call.called == name)
    listening = {listener.rank for listener in at_it if listener.rank is not None}
    return tuple(sorted(listening) or [rank.rank for rank in run.on(name)] or sorted(run.unseen))
