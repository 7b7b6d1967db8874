"""Who waits for whom, as a directed graph: where its chains of waiting end. Pure, and of any hashable nodes.

An end is a strongly connected component that no edge leaves: a node that waits for nobody (a sink), or a cycle whose nodes
wait for each other. Every node reaches at least one end.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from hangdoc.reasoning.model.waits import End

Node = TypeVar("Node", bound=Hashable)


def find_ends(edges: Mapping[Node, Collection[Node]]) -> list[End[Node]]:
    """All ends of a graph, whose nodes are the keys of `edges`, in the order of their first nodes there.

    Raises KeyError for an edge to a node that is no key.
    """
    before: dict[Node, list[Node]] = {node: [] for node in edges}
    for node, further in edges.items():
        for far in further:
            before[far].append(node)
    ends: list[End[Node]] = []
    placed: set[Node] = set()
    for start in edges:
        if start in placed:
            continue
        node = start
        while not (after := _reached(node, edges)).keys() <= (back := _reached(node, before)).keys():
            node = next(far for far in reversed(after) if far not in back)  # a node further on, with no way back
        cycle = len(after) > 1 or node in edges[node]
        ends.append(End(frozenset(after), cycle, frozenset(back.keys() - after.keys())))
        placed.update(back)
    position = {node: at for at, node in enumerate(edges)}
    return sorted(ends, key=lambda end: min(position[node] for node in end.nodes))


def _reached(start: Node, edges: Mapping[Node, Collection[Node]]) -> dict[Node, None]:
    """The nodes that a node reaches, itself included, as the keys of a dict: in the order in which they are found."""
    reached, todo = {start: None}, [start]
    while todo:
        for far in edges[todo.pop()]:
            if far not in reached:
                reached[far] = None
                todo.append(far)
    return reached
