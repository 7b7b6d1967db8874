"""Who waits for whom, as a directed graph: where its chains of waiting end. Pure, and of any hashable nodes.

An end is a strongly connected component that no edge leaves: a node that waits for nobody (a sink), or a cycle whose nodes
wait for each other. Every node reaches at least one end.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

Node = TypeVar("Node", bound=Hashable)


class End(NamedTuple, Generic[Node]):
    """Where chains of waiting end."""

    nodes: frozenset[Node]
    cycle: bool
    """Whether its nodes wait for each other, or the only one for itself."""
    upstream: frozenset[Node]
    """All other nodes that reach it."""


def ends(edges: Mapping[Node, Collection[Node]]) -> list[End[Node]]:
    """All ends of a graph, whose nodes are the keys of `edges`, in the order of their first nodes there.

    Raises KeyError for an edge to a node that is no key.
    """
    component = _components(edges)
    members: dict[int, list[Node]] = {}
    for node in edges:
        members.setdefault(component[node], []).append(node)
    leaves = {
        number: {component[far] for near in nodes for far in edges[near]} - {number}
        for number, nodes in members.items()
    }
    before: dict[int, set[int]] = {number: set() for number in members}
    for number, further in leaves.items():
        for far in further:
            before[far].add(number)
    found = []
    for number, nodes in members.items():
        if leaves[number]:
            continue
        upstream = {node for other in _reachable(number, before) - {number} for node in members[other]}
        cycle = len(nodes) > 1 or nodes[0] in edges[nodes[0]]
        found.append(End(frozenset(nodes), cycle, frozenset(upstream)))
    return found


def _reachable(start: int, edges: Mapping[int, set[int]]) -> set[int]:
    reached, todo = {start}, [start]
    while todo:
        for far in edges[todo.pop()] - reached:
            reached.add(far)
            todo.append(far)
    return reached


def _components(edges: Mapping[Node, Collection[Node]]) -> dict[Node, int]:
    """The number of each node's strongly connected component (Tarjan 1972, without recursion)."""
    index: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    component: dict[Node, int] = {}
    path: list[Node] = []
    for root in edges:
        if root in index:
            continue
        index[root] = lowest[root] = len(index)
        path.append(root)
        calls = [(root, iter(edges[root]))]
        while calls:
            node, rest = calls[-1]
            for far in rest:
                if far not in index:
                    index[far] = lowest[far] = len(index)
                    path.append(far)
                    calls.append((far, iter(edges[far])))
                    break
                if far not in component:
                    lowest[node] = min(lowest[node], index[far])
            else:
                calls.pop()
                if calls:
                    caller = calls[-1][0]
                    lowest[caller] = min(lowest[caller], lowest[node])
                if lowest[node] == index[node]:
                    while True:
                        member = path.pop()
                        component[member] = index[node]
                        if member == node:
                            break
    return component
