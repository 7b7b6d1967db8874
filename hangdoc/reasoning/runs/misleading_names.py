"""Runs whose names mislead: one run whose launches have different endpoints or run ids, and several runs with one name."""

from collections import Counter
from typing import NamedTuple

from hangdoc.parse import natural
from hangdoc.reasoning.evidence.stack import has_met, in_rendezvous
from hangdoc.reasoning.model.run import Placed
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.runs.links import peers_by_connection
from hangdoc.reasoning.runs.processes import Gathered
from hangdoc.snapshot import Connections, Process


def join_strayed(runs: list[Gathered]) -> None:
    """Make one run of those that wait for the rest of their ranks, start the same program, complement each other and were
    given different meeting points. It keeps the meeting point of node 0. The finding is HD406."""
    waiting: dict[tuple[str, int | None], list[Gathered]] = {}
    for run in runs:
        if _waits_for_the_rest(run):
            waiting.setdefault((_program(run), _world(run)), []).append(run)
    gone: set[int] = set()
    for (program, _), parts in waiting.items():
        together = _that_complete_each_other(parts) if program else []
        on_one_host = len({host.name for run in together for host, _ in run.processes}) < len(together)
        told_wrong = _are_agents_of_one_run(together) or any(_nobody_listens(run) for run in together)
        if len(together) < 2 or (on_one_host and not told_wrong):
            continue
        first, *others = sorted(together, key=lambda run: (_was_given_no_endpoint(run), _first_node(run)))
        for run in others:
            first.members += run.members
            first.launchers += run.launchers
            first.zombies += run.zombies
            gone.add(id(run))
    runs[:] = [run for run in runs if id(run) not in gone]


def _that_complete_each_other(parts: list[Gathered]) -> list[Gathered]:
    """The parts that can belong to one run: no rank is in two of them, and the agents on one host state different node ranks, or
    their endpoints show it."""
    if len({bool(run.members) for run in parts}) > 1:
        return []
    if parts[0].members:
        times = Counter(number for run in parts for number in run.numbers)
        return [run for run in parts if all(times[number] == 1 for number in run.numbers)]
    if _are_agents_of_one_run(parts):
        return parts
    nodes: dict[str, list[int | None]] = {}
    for run in parts:
        for host_name, node in {(host.name, _node_of_launcher(process)) for host, process in run.launchers}:
            nodes.setdefault(host_name, []).append(node)
    unclear = {
        host_name
        for host_name, on_host in nodes.items()
        if len(on_host) > 1 and (None in on_host or len(set(on_host)) < len(on_host))
    }
    return [run for run in parts if not any(host.name in unclear for host, _ in run.launchers)]


def _are_agents_of_one_run(parts: list[Gathered]) -> bool:
    """Whether the endpoints of agents show that they belong together."""
    return _are_agents_of_one_endpoint(parts) or _some_were_given_none(parts)


def _are_agents_of_one_endpoint(parts: list[Gathered]) -> bool:
    """Whether agents were given one endpoint, so that only their run ids keep them apart."""
    if any(launch.takes_free_port(process) for run in parts for _, process in run.launchers):
        return False
    endpoints = {(run.master, run.alone_on) for run in parts}
    return len(endpoints) == 1 and all(run.master is not None and not run.members for run in parts)


def _some_were_given_none(parts: list[Gathered]) -> bool:
    """Whether agents are as many as they wait for, and some of them were given an endpoint, but others not: these wait at the
    default endpoint, where none of the first can be."""
    stated = [node for run in parts for _, process in run.launchers if (node := _node_of_launcher(process)) is not None]
    if {_was_given_no_endpoint(run) for run in parts} != {False, True} or len(set(stated)) < len(stated):
        return False
    return sum(len(run.launchers) for run in parts) == _world(parts[0])


def _was_given_no_endpoint(run: Gathered) -> bool:
    lines = [process.launch for _, process in run.launchers if not run.members]
    return bool(lines) and all(line is not None and line.default_endpoint for line in lines)


def _waits_for_the_rest(run: Gathered) -> bool:
    if not run.members:
        return bool(run.launchers) and all(launch.waits_for_nodes(process) for _, process in run.launchers)
    return all(in_rendezvous(process) for _, process in run.members)


def _program(run: Gathered) -> str:
    _, process = run.processes[0]
    return launch.program(process.argv)


def _world(run: Gathered) -> int | None:
    """What both parts expect: ranks, or nodes where no rank was started."""
    if run.identities:
        return run.identities[0].world_size
    return next((launch.nodes(process) for _, process in run.launchers), None)


def _node_of_launcher(launcher: Process) -> int | None:
    return launcher.launch.node_rank if launcher.launch is not None else None


def _first_node(run: Gathered) -> int:
    nodes = [_node_of_launcher(process) for _, process in run.launchers]
    return min((number for number in (*run.numbers, *nodes) if number is not None), default=0)


def _nobody_listens(run: Gathered) -> bool:
    """Whether the rendezvous endpoint is on a host of this run, and no process listens there."""
    port = natural((run.master or "").rpartition(":")[2])
    if port is None or run.alone_on is None:
        return False
    seen = [host.connections for host, _ in run.processes if host.name == run.alone_on]
    return any(isinstance(c, Connections) and all(listener.port != port for listener in c.listeners) for c in seen)


# --- several runs with one name ---------------------------------------------------------------------------------------


_MOST_COMPARED = 64
"""Earlier runs of one name with which a rank is compared. Those of more are shown one by one."""
_ONE_START_SECONDS = 10.0
"""Between two processes that a script starts one after the other. Who starts a run again has waited for the first to fail."""


def layers_of(members: list[Placed], launchers: list[Placed], stores: set[int]) -> list[list[Placed]]:
    """The ranks of the run, and after them those of each earlier one. `stores`: ports of its stores."""
    layers: list[_Layer] = []
    parts = _parts(members, launchers, stores)
    # Ranks whose launcher is alive first, the youngest first: what is left over is an earlier run.
    for part in sorted(parts, key=lambda part: min((p.launcher_gone, p.started_seconds_ago) for _, p in part)):
        added = _layer_of(part)
        layer = next((layer for layer in layers[:_MOST_COMPARED] if layer.fits(added)), None)
        if layer is None:
            layers.append(added)
        else:
            layer.add(added)
    return [layer.members for layer in layers]


def find_duplicates(run: Gathered, others: list[list[Placed]]) -> list[Placed]:
    """The ranks among `others` that got a number of the run's ranks by mistake: one parent started both within seconds, both wait
    in the rendezvous, and the run expects so many. Two whole runs with one name are more."""
    by_rank = run.by_rank
    all_duplicates = (members for members in others if all(_is_duplicate(each, by_rank) for each in members))
    duplicates = [place for members in all_duplicates for place in members]
    expected = {identity.world_size for identity in run.identities}
    room = min((size or 0 for size in expected), default=0) - len(run.numbers)
    return duplicates if len(duplicates) <= room else []


def _is_duplicate(place: Placed, by_rank: dict[int, Placed]) -> bool:
    """Whether a rank was started together with the rank of the run that has its number."""
    (host, process), number = place, place[1].identity.rank if place[1].identity is not None else -1
    there, first = by_rank.get(number, (None, None))
    return (
        there is not None
        and first is not None
        and (host.name, process.ppid, process.argv) == (there.name, first.ppid, first.argv)
        and process.ppid > 1
        and abs(process.started_seconds_ago - first.started_seconds_ago) <= _ONE_START_SECONDS
        and in_rendezvous(process)
        and in_rendezvous(first)
    )


def _numbers_of(members: list[Placed]) -> set[int]:
    """The ranks that some processes are."""
    return {process.identity.rank for _, process in members if process.identity is not None}


class _Part(NamedTuple):
    members: list[Placed]
    numbers: set[int]


def _parts(members: list[Placed], launchers: list[Placed], stores: set[int]) -> list[list[Placed]]:
    """The ranks that are proven to belong together: by live connections, or by one launcher that is alive."""
    part_of = {(host.name, p.pid): _Part([(host, p)], _numbers_of([(host, p)])) for host, p in members}
    hosts = tuple({host.name: host for host, _ in members}.values())
    pairs = list(peers_by_connection(hosts, set(part_of), stores))
    agents = {(host.name, process.pid) for host, process in launchers}
    started: dict[tuple[str, int | None], tuple[str, int]] = {}
    for host, process in members:
        owner = (host.name, process.owner)
        if owner in agents:
            pairs.append((started.setdefault(owner, (host.name, process.pid)), (host.name, process.pid)))
    for process_key, other_key in pairs:
        kept, gone = part_of[process_key], part_of[other_key]
        if len(kept.members) < len(gone.members):
            kept, gone = gone, kept
        if kept is not gone and kept.numbers.isdisjoint(gone.numbers):
            kept.members.extend(gone.members)
            kept.numbers.update(gone.numbers)
            for host, process in gone.members:
                part_of[host.name, process.pid] = kept
    return list({id(part): part.members for part in part_of.values()}.values())


class _Layer(NamedTuple):
    """Ranks that may be of one run, and what they are compared by with those that may join them."""

    members: list[Placed]
    numbers: set[int]
    launcher_gone: set[bool]
    nodes: set[tuple[bool, str, int | None]]
    """Whether the launcher is gone, with the host and the node rank."""
    met: set[bool]
    """Whether they are past the rendezvous."""

    def fits(self, other: "_Layer") -> bool:
        """Whether ranks that are not connected to these may be of one run with them."""
        if not self.numbers.isdisjoint(other.numbers):
            return False
        if len(self.launcher_gone | other.launcher_gone) == 1:
            return True
        # One side has lost its launcher. On one node a run has one launcher; and who is past the rendezvous has met all ranks
        # of its run, so that one who still waits there belongs to another.
        same_node = any((not gone, host, node) in self.nodes for gone, host, node in other.nodes)
        return not same_node and len(self.met | other.met) == 1

    def add(self, other: "_Layer") -> None:
        """The others are of the same run."""
        self.members.extend(other.members)
        self.numbers.update(other.numbers)
        self.launcher_gone.update(other.launcher_gone)
        self.nodes.update(other.nodes)
        self.met.update(other.met)


def _layer_of(part: list[Placed]) -> _Layer:
    """A layer of these ranks alone."""
    return _Layer(
        part,
        _numbers_of(part),
        {process.launcher_gone for _, process in part},
        {(process.launcher_gone, host.name, _node_of_rank(process)) for host, process in part},
        {has_met(process) for _, process in part},
    )


def _node_of_rank(rank: Process) -> int | None:
    return rank.identity.node_rank if rank.identity is not None else None
