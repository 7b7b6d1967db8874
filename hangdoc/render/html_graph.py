"""The positions of nodes and arrows in the page's drawing: a small layered layout, in pixels.

Wait chains end at the bottom. The lowest layer holds culprits and ranks that wait for no rank, the layer above it those that wait
for them, and so on. An arrow that would cross other nodes, like the one that closes a cycle, passes beside all nodes.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hangdoc.detail import WaitGraph, WaitNode

WIDTH, HEIGHT = 320, 84
_GAP, _LAYER_GAP, _MARGIN, _LANE = 24, 44, 8, 18
_PER_ROW = 2
"""Nodes side by side. More would not fit on a phone."""
_CHARACTERS = {"title": 30, "doing": 40, "place": 38, "tooltip": 200}
"""Characters that fit into each line of a node."""


@dataclass(frozen=True)
class Box:
    """A node, by its upper left corner."""

    x: float
    y: float
    node: WaitNode


@dataclass(frozen=True)
class Drawing:
    """A finished layout."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[str, ...]
    """SVG path data, each ending at its arrow's head."""
    left_out: int
    """How many arrows are not drawn because there would be too many to read."""


def drawing(graph: WaitGraph) -> Drawing:
    """The layout of a graph."""
    layers = _assign_layers(graph)
    edges = _readable(graph, layers)
    rows = [row for layer in _split_into_rows(layers) for row in layer]
    spot = {at: (number, column, len(row)) for number, row in enumerate(rows) for column, at in enumerate(row)}
    lanes = _assign_lanes(edges, spot)
    widest = max((len(row) for row in rows), default=0)
    inner = widest * WIDTH + max(0, widest - 1) * _GAP
    left = _MARGIN + _LANE * sum(side < 0 for side, _ in lanes)
    right = left + inner + _LANE * sum(side > 0 for side, _ in lanes)
    place = {
        at: (
            left + (inner - size * WIDTH - (size - 1) * _GAP) / 2 + column * (WIDTH + _GAP),
            _MARGIN + number * (HEIGHT + _LAYER_GAP),
        )
        for at, (number, column, size) in spot.items()
    }
    arrows, pairs = [], set(edges)
    for tail, head in edges:
        both = (head, tail) in pairs and tail != head
        rows_down = spot[head][0] - spot[tail][0]
        if (side := _choose_side(tail, head, spot)) is not None:
            lane = lanes[side, head] * _LANE
            arrows.append(
                _draw_around(*place[tail], *place[head], side, left - lane if side < 0 else left + inner + lane)
            )
        elif rows_down == 0:
            arrows.append(_draw_across(*place[tail], *place[head], (12 if tail < head else -12) if both else 0))
        else:
            arrows.append(_draw_between(*place[tail], *place[head], (-18 if rows_down > 0 else 18) if both else 0))
    height = 2 * _MARGIN + len(rows) * HEIGHT + max(0, len(rows) - 1) * _LAYER_GAP
    boxes = tuple(Box(*place[at], node) for at, node in enumerate(graph.nodes))
    return Drawing(right + _MARGIN, height, boxes, tuple(arrows), len(graph.edges) - len(edges))


def _choose_side(tail: int, head: int, spot: dict[int, tuple[int, int, int]]) -> int | None:
    """On which side an arrow passes the nodes between its ends (-1 left, 1 right); None if there are none."""
    (tail_row, tail_column, tail_size), (head_row, head_column, head_size) = spot[tail], spot[head]
    if tail != head and -1 <= head_row - tail_row <= 1:
        return None
    if tail == head or head_row < tail_row:
        return 1
    column, size = (head_column, head_size) if head_size > 1 else (tail_column, tail_size)
    return -1 if size > 1 and column == 0 else 1


def _assign_lanes(
    edges: Iterable[tuple[int, int]], spot: dict[int, tuple[int, int, int]]
) -> dict[tuple[int, int], int]:
    """A lane beside the nodes for each (side, node that arrows lead to), counted from 1 on each side."""
    lanes: dict[tuple[int, int], int] = {}
    for tail, head in edges:
        if (side := _choose_side(tail, head, spot)) is not None and (side, head) not in lanes:
            lanes[side, head] = 1 + sum(other == side for other, _ in lanes)
    return lanes


def _assign_layers(graph: WaitGraph) -> dict[int, int]:
    """How many waits lead from each node to the end of its wait chain; 0 is the end."""
    waits_for_it: dict[int, list[int]] = {at: [] for at in range(len(graph.nodes))}
    leaves = set()
    for tail, head in graph.edges:
        if tail != head:
            waits_for_it[head].append(tail)
            leaves.add(tail)
    layers: dict[int, int] = {}
    ends = [at for at in waits_for_it if at not in leaves]
    _spread_layers(ends, waits_for_it, layers)
    for at in sorted(waits_for_it, key=lambda at: (not graph.nodes[at].culprit, at)):  # cycles
        if at not in layers:
            _spread_layers([at], waits_for_it, layers)
    return layers


def _spread_layers(ends: Iterable[int], waits_for_it: dict[int, list[int]], layers: dict[int, int]) -> None:
    layers.update(dict.fromkeys(ends, 0))
    todo = deque(ends)
    while todo:
        at = todo.popleft()
        for before in waits_for_it[at]:
            if before not in layers:
                layers[before] = layers[at] + 1
                todo.append(before)


def _split_into_rows(layers: dict[int, int]) -> list[list[list[int]]]:
    """The nodes of each layer in rows, the uppermost layer first."""
    rows = []
    for layer in range(max(layers.values(), default=-1), -1, -1):
        members = [at for at in sorted(layers) if layers[at] == layer]
        rows.append([members[start : start + _PER_ROW] for start in range(0, len(members), _PER_ROW)])
    return rows


def _readable(graph: WaitGraph, layers: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """All edges if they are few, else those that lead towards the end of a chain."""
    if len(graph.edges) <= 2 * len(graph.nodes):
        return graph.edges
    return tuple((tail, head) for tail, head in graph.edges if layers[head] < layers[tail] or tail == head)


def _draw_between(x: float, y: float, to_x: float, to_y: float, shift: float) -> str:
    """The arrow to a node in another row, between the middles of their sides."""
    down = y < to_y
    start, end = (y + HEIGHT, to_y - 3) if down else (y, to_y + HEIGHT + 3)
    near, far, middle = x + WIDTH / 2 + shift, to_x + WIDTH / 2 + shift, (start + end) / 2
    return f"M{near:g} {start:g}C{near:g} {middle:g} {far:g} {middle:g} {far:g} {end:g}"


def _draw_across(x: float, y: float, to_x: float, to_y: float, shift: float) -> str:
    """The arrow to a node in the same row."""
    start, end = (x + WIDTH, to_x - 3) if x < to_x else (x, to_x + WIDTH + 3)
    return f"M{start:g} {y + HEIGHT / 2 + shift:g}H{end:g}"


def _draw_around(x: float, y: float, to_x: float, to_y: float, side: int, lane: float) -> str:
    """The arrow along a lane beside all nodes, to another node or back to the same one."""
    out, back = (x + WIDTH, to_x + WIDTH + 3) if side > 0 else (x, to_x - 3)
    start, end = y + HEIGHT / 2, to_y + HEIGHT / 2
    if start == end:
        start, end = start - 18, end + 18
    turn = min(14, abs(end - start) / 2) * (1 if end > start else -1)
    corner = f"C{lane:g} {start:g} {lane:g} {start:g} {lane:g} {start + turn:g}"
    return f"M{out:g} {start:g}{corner}V{end - turn:g}C{lane:g} {end:g} {lane:g} {end:g} {back:g} {end:g}"


def short(text: str, line: str) -> str:
    """The text cut to what fits into that line of a node: a place at its beginning, other texts at their end."""
    most = _CHARACTERS[line]
    if len(text) <= most:
        return text
    return "…" + text[1 - most :] if line == "place" else text[: most - 1] + "…"
