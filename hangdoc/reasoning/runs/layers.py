"""Ranks with the name of one run that are of several: the run itself, and what is left over of earlier ones."""

from typing import NamedTuple

from hangdoc.reasoning.evidence.rendezvous import has_met
from hangdoc.reasoning.model.run import Placed
from hangdoc.reasoning.runs.links import peers_by_connection
from hangdoc.snapshot import Process

_MOST_COMPARED = 64
"""Earlier runs of one name with which a rank is compared. Those of more are shown one by one."""


def layers_of(members: list[Placed], launchers: list[Placed], stores: set[int]) -> list[list[Placed]]:
    """The ranks of the run, and after them those of each earlier one. `stores`: ports of its stores."""
    layers: list[_Layer] = []
    parts = _parts(members, launchers, stores)
    # Ranks whose launcher is alive first, the youngest first: what is left over is an earlier run.
    for part in sorted(parts, key=lambda part: min((p.launcher_gone, p.started_seconds_ago) for _, p in part)):
        found = _Layer.of(part)
        layer = next((layer for layer in layers[:_MOST_COMPARED] if layer.fits(found)), None)
        if layer is None:
            layers.append(found)
        else:
            layer.add(found)
    return [layer.members for layer in layers]


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
    for one, other in pairs:
        kept, gone = part_of[one], part_of[other]
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

    @classmethod
    def of(cls, part: list[Placed]) -> "_Layer":
        """A layer of these ranks alone."""
        return cls(
            part,
            _numbers_of(part),
            {process.launcher_gone for _, process in part},
            {(process.launcher_gone, host.name, _node(process)) for host, process in part},
            {has_met(process) for _, process in part},
        )

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


def _node(process: Process) -> int | None:
    return process.identity.node_rank if process.identity is not None else None
