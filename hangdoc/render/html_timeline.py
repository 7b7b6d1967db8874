"""The page's timeline: a strip for each row, with one SVG path per kind of cell.

The time between looks varies, so the strip is drawn over time: a cell reaches from the previous look to its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from hangdoc.timeline import CELLS, Row, Timeline

SCALE = 1000
"""Width of a strip, in the units of its paths."""
_POLLS_SHOWN = 240
_ROWS_SHOWN = 64


@dataclass(frozen=True)
class Band:
    """One row's cells."""

    ranks: tuple[int, ...]
    culprit: bool
    paths: tuple[tuple[str, str], ...]
    """(kind of cell, SVG path data along y = 5)."""
    mixed: str
    """SVG path data of the cells in which only some of its ranks made progress."""


@dataclass(frozen=True)
class Strip:
    """The whole timeline."""

    polls: int
    seconds: float
    """From the beginning of the strip to the newest look."""
    bands: tuple[Band, ...]
    kinds: tuple[str, ...]
    """Kinds of cells in the strip, for the legend."""
    silent: float | None
    """The position of the last byte between the ranks; None if it is not on the strip, or unknown."""
    left_out: int


def strip(timeline: Timeline, culprits: frozenset[int], silent_seconds: float | None) -> Strip:
    """The newest looks. `silent_seconds`: how long before the last look the last byte between the ranks was."""
    start = max(0, len(timeline.seconds) - _POLLS_SHOWN)
    seconds = timeline.seconds[start:]
    gaps = [later - earlier for earlier, later in pairwise(seconds)]
    first = seconds[0] - (sorted(gaps)[len(gaps) // 2] if gaps else 1.0)  # the start of the first cell is unknown
    span = seconds[-1] - first
    edges = [0, *(round(SCALE * (at - first) / span) for at in seconds)]
    bands = tuple(_band(row, start, edges, culprits) for row in timeline.rows[:_ROWS_SHOWN])
    used = {cell for row in timeline.rows[:_ROWS_SHOWN] for cell in row.cells[start:]}
    return Strip(
        polls=len(seconds),
        seconds=span,
        bands=bands,
        kinds=tuple(cell for cell in CELLS if cell in used),
        silent=SCALE * (1 - silent_seconds / span) if silent_seconds is not None and silent_seconds < span else None,
        left_out=len(timeline.rows) - len(bands),
    )


def _band(row: Row, start: int, edges: Sequence[int], culprits: frozenset[int]) -> Band:
    cells = row.cells[start:]
    kinds = [cell for cell in CELLS if cell in cells and cell != "unseen"]
    paths = tuple((cell, _path([one == cell for one in cells], edges)) for cell in kinds)
    mixed = _path([0 < share < 1 for share in row.progress[start:]], edges)
    return Band(row.ranks, set(row.ranks) <= culprits, paths, mixed)


def _path(marked: Sequence[bool], edges: Sequence[int]) -> str:
    """Lines over the marked cells; a cell reaches from its edge to the next one."""
    parts, at = [], 0
    for mark, run in groupby(marked):
        end = at + len(list(run))
        if mark:
            parts.append(f"M{edges[at]} 5H{edges[end]}")
        at = end
    return "".join(parts)
