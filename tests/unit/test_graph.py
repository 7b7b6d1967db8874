"""The wait-for graph: sinks, cycles, and what lies upstream of them, on graphs made by hand and at random."""

import random

from hypothesis import given
from hypothesis import strategies as st

from hangdoc.reasoning.waiting.graph import find_ends

Edges = dict[int, frozenset[int]]


def by_hand(**edges: str) -> list[tuple[str, bool, str]]:
    """The ends of a graph of letters: (nodes, whether it is a cycle, upstream)."""
    found = find_ends({node: list(far) for node, far in edges.items()})
    return [("".join(sorted(one.nodes)), one.cycle, "".join(sorted(one.upstream))) for one in found]


def test_graphs_made_by_hand() -> None:
    assert by_hand() == []
    assert by_hand(a="") == [("a", False, "")]
    assert by_hand(a="a") == [("a", True, "")]
    assert by_hand(a="b", b="") == [("b", False, "a")]
    assert by_hand(a="b", b="a", c="a") == [("ab", True, "c")]
    # A cycle that also waits for a sink: the sink is the end.
    assert by_hand(a="b", b="ac", c="") == [("c", False, "ab")]
    # Two ends, and one that waits for both.
    assert by_hand(a="bc", b="", c="d", d="c") == [("b", False, "a"), ("cd", True, "a")]


def test_a_long_chain_needs_no_recursion() -> None:
    length = 50_000
    (end,) = find_ends({node: [node + 1] if node < length else [] for node in range(length + 1)})
    assert (end.nodes, end.cycle, len(end.upstream)) == ({length}, False, length)


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    size = draw(st.integers(1, 9))
    return {node: draw(st.frozensets(st.integers(0, size - 1), max_size=3)) for node in range(size)}


def reachable(edges: Edges, start: int) -> set[int]:
    found, todo = set[int](), [start]
    while todo:
        for far in edges[todo.pop()] - found:
            found.add(far)
            todo.append(far)
    return found


@given(graphs(), st.randoms(use_true_random=False))
def test_ends_are_what_reaching_says(edges: Edges, dice: random.Random) -> None:
    found = find_ends(edges)
    reached = {node: reachable(edges, node) for node in edges}
    for end in found:
        for node in end.nodes:
            assert reached[node] | {node} == end.nodes  # nothing leaves it, and all of it is connected
            assert end.cycle == (node in reached[node])
        assert end.upstream == {node for node in edges if node not in end.nodes and reached[node] & end.nodes}
    assert all(any(node in end.nodes | end.upstream for end in found) for node in edges)
    shuffled = list(edges)
    dice.shuffle(shuffled)
    assert set(find_ends({node: edges[node] for node in shuffled})) == set(found)
