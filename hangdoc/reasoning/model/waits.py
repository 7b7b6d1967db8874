"""Which rank waits for which: the graph of a run."""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from hangdoc.reasoning.model.rank import Class

Key = TypeVar("Key", bound=Hashable)


class End(msgspec.Struct, Generic[Key], frozen=True):
    """Where chains of waiting end."""

    nodes: frozenset[Key]
    cycle: bool
    """Whether its nodes wait for each other, or the only one for itself."""
    upstream: frozenset[Key]
    """All other nodes that reach it."""


class Node(NamedTuple):
    """Ranks that wait in one call, a class that does not wait, or the ranks that were not observed (no class)."""

    classes: tuple[Class, ...]
    ranks: frozenset[int]
    awaits: frozenset[int]
    """The ranks that it waits for."""


class Waits(NamedTuple):
    """The graph, and where it ends."""

    nodes: tuple[Node, ...]
    ends: tuple[End[int], ...]
    """By positions in `nodes`."""
    position: dict[int, int]
    """Of each rank's node."""

    def awaited_by(self, alike: Class) -> frozenset[int]:
        """The ranks that a class waits for."""
        return self.nodes[self.position[alike.ranks[0]]].awaits
