"""What is wrong with a launch: different settings, a port or an interface that cannot be used, a launcher that is gone."""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from hangdoc.parse import natural
from hangdoc.reasoning.causes.network import spans_hosts
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import MeetingCall, meeting_call_of
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause, LaunchesDiffer, Part
from hangdoc.reasoning.model.holds import Hold, ReadsPipe
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs import launch
from hangdoc.run_identity import is_loopback, spell_number
from hangdoc.snapshot import Connections, Environment, Host, Launch, Listener, Machine, Process
from hangdoc.torch_facts import environment_names
from hangdoc.torch_facts.launchers import TAKES_TORCHRUN_OPTIONS


class PortTaken(Cause, frozen=True, kw_only=True):
    """A process of another run or program listens on the master port."""

    NAME = "port-taken"
    host: str
    listener: Listener


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


class Orphaned(Cause, frozen=True, kw_only=True):
    """The process that started ranks is gone, and one of them reads from a pipe that no process writes to any more, or waits for
    data of which nothing shows from whom they should come."""

    NAME = "orphaned"
    ranks: tuple[int, ...]
    """All orphans of the run."""


# --- settings of the nodes -----------------------------------------------------------------------------------------------

# (its usual name, its value, whether it matters only before the rendezvous is complete)
_MUST_AGREE: tuple[tuple[str, Callable[[Part], str | None], bool], ...] = (
    ("--nnodes", lambda part: part.nodes if part.process.launch else None, False),
    ("WORLD_SIZE", lambda part: part.nodes if part.process.launch is None else None, False),
    ("init_method", lambda part: part.init_method, True),
    ("master address", lambda part: part.meets_at, True),
    ("master port", lambda part: part.port, True),
    ("run id", lambda part: part.run_id, False),
)


_NEVER_MEET = ("master port", "run id")
"""Nodes for which one of these differs never meet. Other settings may be two spellings of one: `--nnodes 2` and `1:2`, a name and
its address."""


def find_different_launches(run: Run, blockage: Blockage) -> LaunchesDiffer | None:
    """The settings that differ, if they keep the nodes from meeting."""
    return run.launches if run.launches is not None and not run.launches.met else None


def compare_launches(run: Run) -> LaunchesDiffer | None:
    """All settings that differ between the nodes, else those that differ between the ranks."""
    stuck = _stuck(run)
    agents = _agents(run)
    different = _differences(run, agents, stuck)
    if different is None and (stuck or not agents):
        return _differences(run, _ranks(run, stuck), stuck)
    return different


def _differences(run: Run, parts: list[Part], stuck: bool) -> LaunchesDiffer | None:
    if len(parts) < 2:
        return None
    reference = _reference(run, parts)
    wrong: dict[str, Part] = {}
    differences = []
    differing = {name for name, read, _ in _MUST_AGREE if len({read(part) for part in parts}) > 1}
    for name, read, before_meeting in _MUST_AGREE:
        if before_meeting and not stuck:
            continue  # the rendezvous is complete: two spellings of one address
        if name in differing:
            values = (f"{read(part) or 'not given'} on {part.place}" for part in parts[:8])
            differences.append(f"{name} is {', '.join(values)}")
            wrong |= {part.place: part for part in parts if read(part) != read(reference)}
    claimed: dict[int, list[Part]] = {}
    for part in parts:
        if part.number is not None and part.process.launch is not None:
            claimed.setdefault(part.number, []).append(part)
    for number, both in claimed.items():
        if len(both) > 1:
            differences.append(f"node rank {number} is used by " + " and ".join(part.place for part in both))
            wrong |= {part.place: part for part in both if part is not reference}
    if not differences:
        return None
    apart = stuck and (not differing.isdisjoint(_NEVER_MEET) or any(_meets_nobody(part, reference) for part in parts))
    return LaunchesDiffer(
        parts=tuple(parts), differences=tuple(differences), wrong=tuple(wrong.values()), reference=reference,
        met=not stuck, culprits=_culprits(run, list(wrong.values()), stuck), ends="never" if apart else None,
    )  # fmt: skip


def _meets_nobody(part: Part, reference: Part) -> bool:
    """Whether an agent waits at an address of its own host alone, where no other process listens: it has no tunnel."""
    if launch.meets_alone(part.process):
        return True
    here, namespace = part.host, observed.namespace_of(part.process)
    if not is_loopback(part.address or "") or here is reference.host or not isinstance(here.connections, Connections):
        return False
    there = [
        each for each in observed.listeners(here) if each.port == natural(part.port) and each.namespace == namespace
    ]
    return part.process.launch is not None and all(each.pid == part.process.pid for each in there)


def _culprits(run: Run, wrong: list[Part], stuck: bool) -> tuple[int, ...]:
    hosts = {part.host.name for part in wrong}
    seen = [rank.rank for rank in run.ranks.values() if rank.host in hosts and len(hosts) < len(run.hosts)]
    return tuple(sorted({*seen, *(rank for part in wrong for rank in part.ranks if stuck)}))


def _agents(run: Run) -> list[Part]:
    """The agents of the nodes."""
    agents = [
        (h, p, p.launch) for h, p in run.launchers if p.launch is not None and p.launch.tool in TAKES_TORCHRUN_OPTIONS
    ]
    agents_on = Counter(host.name for host, _, _ in agents)
    alone = {name for name, number in agents_on.items() if number == 1}
    return [_agent(h, p, asked, h.name if h.name in alone else f"{h.name} (pid {p.pid})") for h, p, asked in agents]


def _ranks(run: Run, stuck: bool) -> list[Part]:
    """The ranks, if they were given different rendezvous endpoints."""
    seen = [
        (run.host[r.host], r.process, r.rank)
        for r in run.ranks.values()
        if r.process and isinstance(r.process.environment, Environment)
    ]
    calls = [meeting_call_of(process) if stuck else None for _, process, _ in seen]
    if None in calls:  # else a rank that has made the call would differ from one that has not
        calls = [None] * len(seen)
    parts = [_rank(*each, call) for each, call in zip(seen, calls, strict=True)]
    if not stuck and any(part.nodes is None for part in parts):
        # A launcher that becomes rank 0 itself (Lightning) passes the number of ranks in the call.
        parts = [msgspec.structs.replace(part, nodes=None) for part in parts]
    different = {(part.meets_at, part.port, part.nodes, part.init_method) for part in parts}
    return parts if len(different) > 1 else []


def _agent(host: Host, process: Process, asked: Launch, place: str) -> Part:
    address, _, port = (asked.endpoint or "").rpartition(":")
    if launch.takes_free_port(process):
        address, port = (address, "a free one") if launch.meets_alone(process) else ("", "")
    per_node = natural(asked.nproc_per_node or "1")
    ranks: tuple[int, ...] = ()
    if asked.node_rank is not None and per_node is not None and per_node < 1024:
        ranks = tuple(range(asked.node_rank * per_node, (asked.node_rank + 1) * per_node))
    return Part(host, process, place, asked.nnodes, address or None, port or None, asked.run_id, asked.node_rank, ranks)


def _rank(host: Host, process: Process, number: int, call: MeetingCall | None) -> Part:
    variables = observed.environment(process)
    method = call.init_method if call is not None else None
    size = call.world_size if call is not None else None
    nodes = str(size) if size is not None else variables.get("WORLD_SIZE")
    # Only `env://` reads these variables (torch/distributed/rendezvous.py).
    address, port = (variables.get(name) if method is None else None for name in ("MASTER_ADDR", "MASTER_PORT"))
    port, nodes = (spell_number(text) if text is not None else None for text in (port, nodes))
    run_id = variables.get(environment_names.RUN_ID)
    return Part(host, process, f"rank {number}", nodes, address, port, run_id, number, (number,), method)


def _stuck(run: Run) -> bool:
    """Whether the nodes have not completed the rendezvous."""
    return all(alike.first.in_rendezvous for alike in run.classes)


def _reference(run: Run, parts: list[Part]) -> Part:
    """The part that the others must match: the node with the rendezvous endpoint, else the first node."""
    address, _ = run.endpoint
    owner = next(
        (p for p in parts if observed.interface_with(p.host, observed.namespace_of(p.process), address) is not None),
        None,
    )
    return owner or min(parts, key=lambda part: part.number or 0)


# --- the port of the rendezvous ------------------------------------------------------------------------------------------


def find_taken_port(run: Run, blockage: Blockage) -> PortTaken | None:
    """A process of another run or program that listens at the rendezvous endpoint."""
    _, port = run.endpoint
    for host in _meeting_hosts(run) if port is not None else ():
        listeners = [each for each in observed.listeners(host) if each.port == port and each.pid is not None]
        if not listeners:
            continue
        ours = _own_pids(run, host)
        namespaces = {p.namespaces.get("net") for p in host.processes if p.pid in ours or host is run.meeting_host}
        for listener in listeners:
            if listener.pid not in ours and listener.namespace in namespaces:
                # Rank 0 serves the store, unless its launcher does. A rank that cannot bind the port ends.
                gone = 0 in run.unseen or (0 in run.ranks and run.ranks[0].label == "dead")
                culprits = (0,) if gone and run.ranks else ()
                return PortTaken(host=host.name, listener=listener, culprits=culprits, ends="never")
    return None


def _meeting_hosts(run: Run) -> tuple[Host, ...]:
    """The hosts of the run, and the host of the rendezvous endpoint, even without a process of the run."""
    meeting = run.meeting_host
    return run.hosts if meeting is None or meeting in run.hosts else (*run.hosts, meeting)


def _own_pids(run: Run, host: Host) -> set[int]:
    """Pids of a host that are the run's: ranks, what started them, and what they started."""
    mine = {launcher.pid for place, launcher in run.launchers if place.name == host.name}
    mine |= {p for r in run.on(host.name) if r.process is not None for p in (r.pid, r.process.owner) if p is not None}
    return mine | {process.pid for process in host.processes if process.owner in mine}


# --- the interface of a rank ---------------------------------------------------------------------------------------------


def find_unusable_interface(run: Run, blockage: Blockage) -> UnusableInterface | None:
    """The first host whose ranks were given such an interface."""
    for host, ranks in _meeting_ranks(run):
        for rank in ranks:
            named = named_interface(rank)
            if named is None:
                continue
            if (why := _unusable(rank, host, named[1])) is None:
                break  # one rank speaks for its host
            culprits = tuple(rank.rank for rank in ranks)
            return UnusableInterface(
                host=host, ranks=ranks, variable=named[0], value=named[1], why=why, culprits=culprits
            )
    return None


def find_loopback_name(run: Run, blockage: Blockage) -> LoopbackName | None:
    """The first host whose ranks publish the loopback address of its name."""
    for host, ranks in _meeting_ranks(run):
        named = host.machine.hostname_addresses if isinstance(host.machine, Machine) else None
        exposed = tuple(rank for rank in ranks if named_interface(rank) is None)
        if exposed and isinstance(named, tuple) and named and all(map(is_loopback, named)):
            culprits = tuple(rank.rank for rank in exposed)
            return LoopbackName(host=host.name, addresses=named, ranks=exposed, culprits=culprits)
    return None


def named_interface(rank: Rank) -> tuple[str, str] | None:
    """The variable that sets the interface of a rank, and its value."""
    variables = observed.environment(rank.process)
    return next(((name, variables[name]) for name in environment_names.INTERFACES if variables.get(name)), None)


def _meeting_ranks(run: Run) -> Iterator[tuple[Host, tuple[Rank, ...]]]:
    """The ranks of each host that wait in a rendezvous of several hosts."""
    for host in run.hosts if spans_hosts(run) else ():
        if ranks := tuple(rank for rank in run.on(host.name) if rank.in_rendezvous and not rank.moving):
            yield host, ranks


def _unusable(rank: Rank, host: Host, name: str) -> str | None:
    """Why no peer on another host can reach this interface; None if it may, or if a list or a prefix is given."""
    there = observed.interfaces(host, observed.namespace_of(rank.process))
    if not there or any(c in name for c in ",^="):
        return None
    interface = next((each for each in there if each.name == name), None)
    if interface is None:
        return None if any(each.name.startswith(name) for each in there) else "does not exist there"
    if interface.addresses and all(is_loopback(address) for address in interface.addresses):
        return "is a loopback interface"
    if not interface.up:
        return "is down"
    return None if interface.addresses else "has no address"


# --- a launcher that is gone ---------------------------------------------------------------------------------------------


def find_orphans(run: Run, blockage: Blockage) -> Orphaned | None:
    """The cause of a read from a pipe without a writer, or of a wait for data from anybody; None if what started a rank that
    waits is alive, or is a launcher, which gives its ranks no data."""
    kind = blockage.kind
    if not isinstance(kind, Hold) or not kind.is_from_anybody:
        return None
    without_writer = isinstance(kind, ReadsPipe) and kind.ends == "never" and kind.fifo is None
    orphans = set(orphans_of(run))
    readers = {rank for reading in blockage.awaited for rank in reading.ranks}
    if not without_writer:
        orphans -= {n for n in orphans if environment_names.RUN_ID in observed.environment(run.processes[n])}
    return Orphaned(ranks=tuple(sorted(orphans))) if readers <= orphans else None


def orphans_of(run: Run) -> tuple[int, ...]:
    """The ranks whose launcher is gone."""
    return tuple(sorted(rank for rank, process in run.processes.items() if process.launcher_gone))
