"""The page's timeline: a strip for each row, with one SVG path per kind of cell.

The time between looks varies, so the strip is drawn over time: a cell reaches from the previous look to its own. Before the first
look, cells come from torch's record of calls, and each is divided into computing and waiting. If one cell is a
hundred times as long as another, all are equally wide instead: nothing would be seen of the short ones.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from hangdoc.timeline import CELLS, PROGRESS, WORDS, Cell, Row, Timeline

SCALE = 1000
"""Width of a strip, in the units of its paths."""
_POLLS_SHOWN = 240
_ROWS_SHOWN = 64
_MUCH_LONGER = 100


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
    kinds: tuple[tuple[str, str], ...]
    """Kinds of cells in the strip, each with its word in the legend."""
    silent: float | None
    """The position of the last byte between the ranks; None if it is not on the strip, or unknown."""
    left_out: int
    recorded: int
    """How many cells before the first look come from the record of calls."""
    attached: float | None
    """The position at which the first look began; None if the strip begins there."""
    to_scale: bool
    """Whether equal lengths are equal times."""


def strip(timeline: Timeline, culprits: frozenset[int], silent_seconds: float | None) -> Strip:
    """The newest looks. `silent_seconds`: how long before the last look the last byte between the ranks was."""
    start = max(0, len(timeline.seconds) - _POLLS_SHOWN)
    seconds = timeline.seconds[start:]
    recorded = max(0, timeline.recorded - start)
    gaps = sorted(later - earlier for earlier, later in pairwise(seconds))
    times = [seconds[0] - _measure_first(seconds, gaps, recorded), *seconds]
    span = times[-1] - times[0]
    to_scale = not gaps or not recorded or gaps[-1] < _MUCH_LONGER * gaps[0]
    edges = [
        round(SCALE * (at - times[0]) / span if to_scale else SCALE * i / len(seconds)) for i, at in enumerate(times)
    ]
    bands = tuple(_make_band(row, start, edges, culprits, recorded) for row in timeline.rows[:_ROWS_SHOWN])
    used = {cell for row in timeline.rows[:_ROWS_SHOWN] for cell in row.cells[start:]}
    used |= {"computing" for row in timeline.rows[:_ROWS_SHOWN] if any(row.progress[start : start + recorded])}
    return Strip(
        polls=len(seconds) - recorded,
        seconds=span,
        bands=bands,
        kinds=tuple((cell, WORDS[cell]) for cell in CELLS if cell in used),
        silent=_find_position(-silent_seconds, times, edges)
        if silent_seconds is not None and silent_seconds < span
        else None,
        left_out=len(timeline.rows) - len(bands),
        recorded=recorded,
        attached=edges[recorded] if recorded else None,
        to_scale=to_scale,
    )


def _measure_first(seconds: Sequence[float], gaps: Sequence[float], recorded: int) -> float:
    """The length of the first cell, whose beginning is unknown."""
    if recorded > 1:
        return seconds[1] - seconds[0]
    return gaps[len(gaps) // 2] if gaps else 1.0


def _find_position(at: float, times: Sequence[float], edges: Sequence[int]) -> float:
    after = min(max(1, bisect_left(times, at)), len(times) - 1)
    begin, end = times[after - 1], times[after]
    share = (at - begin) / (end - begin) if end > begin else 1.0
    return edges[after - 1] + share * (edges[after] - edges[after - 1])


def _make_band(row: Row, start: int, edges: Sequence[int], culprits: frozenset[int], recorded: int) -> Band:
    cells, shares = row.cells[start:], row.shares[start:]
    # The share of a cell is one of its time in the past and for a single rank, otherwise it may be one of the ranks.
    of_time = [at < recorded or (len(row.ranks) == 1 and 0 < share < 1) for at, share in enumerate(shares)]
    whole = [None if divided else cell for cell, divided in zip(cells, of_time, strict=True)]
    drawn: dict[Cell, str] = {
        kind: _draw_path([cell == kind for cell in whole], edges)
        for kind in CELLS
        if kind in whole and kind != "unseen"
    }
    for at, cell in enumerate(cells):
        if cell == "unseen" or not of_time[at]:
            continue
        middle = edges[at] + round(shares[at] * (edges[at + 1] - edges[at]))
        working: Cell = cell if cell in PROGRESS else "computing"
        for kind, begin, end in ((working, edges[at], middle), ("waiting", middle, edges[at + 1])):
            if begin < end:
                drawn[kind] = drawn.get(kind, "") + f"M{begin} 5H{end}"
    mixed = _draw_path([not divided and 0 < share < 1 for divided, share in zip(of_time, shares, strict=True)], edges)
    paths = tuple((kind, drawn[kind]) for kind in CELLS if kind in drawn)
    return Band(row.ranks, set(row.ranks) <= culprits, paths, mixed)


def _draw_path(marked: Sequence[bool], edges: Sequence[int]) -> str:
    """Lines over the marked cells; a cell reaches from its edge to the next one."""
    parts, at = [], 0
    for mark, run in groupby(marked):
        end = at + len(list(run))
        if mark:
            parts.append(f"M{edges[at]} 5H{edges[end]}")
        at = end
    return "".join(parts)
