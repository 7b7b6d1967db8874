"""The page's timeline: a strip of cells for each row, as few SVG paths as there are kinds of cells in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hangdoc.timeline import CELLS, Row, Timeline

_POLLS_SHOWN = 240
_ROWS_SHOWN = 64


@dataclass(frozen=True)
class Band:
    """One row's cells. A cell is one unit wide."""

    ranks: tuple[int, ...]
    culprit: bool
    paths: tuple[tuple[str, str], ...]
    """(kind of cell, SVG path data along y = 5)."""
    mixed: str
    """Where only some of its ranks made progress."""


@dataclass(frozen=True)
class Strip:
    """All of it."""

    polls: int
    seconds: float
    """From the first poll that is shown to the newest."""
    bands: tuple[Band, ...]
    kinds: tuple[str, ...]
    """Those that occur, for the legend."""
    still_since: int | None
    """The first poll after the last progress; None where there was progress to the end, or never any."""
    still_seconds: float | None
    """How long before the newest poll that was."""
    left_out: int


def strip(timeline: Timeline, culprits: frozenset[int]) -> Strip:
    """The newest polls."""
    start = max(0, len(timeline.seconds) - _POLLS_SHOWN)
    seconds = timeline.seconds[start:]
    bands = tuple(_band(row, start, culprits) for row in timeline.rows[:_ROWS_SHOWN])
    used = {cell for row in timeline.rows[:_ROWS_SHOWN] for cell in row.cells[start:]}
    last = timeline.last_progress()
    since = None if last is None or last - start + 1 >= len(seconds) else max(0, last - start + 1)
    return Strip(
        polls=len(seconds),
        seconds=-seconds[0],
        bands=bands,
        kinds=tuple(cell for cell in CELLS if cell in used),
        still_since=since,
        still_seconds=-timeline.seconds[last] if last is not None and since is not None else None,
        left_out=len(timeline.rows) - len(bands),
    )


def _band(row: Row, start: int, culprits: frozenset[int]) -> Band:
    cells = row.cells[start:]
    paths = [(cell, _path([one == cell for one in cells])) for cell in CELLS if cell in cells and cell != "unseen"]
    mixed = _path([0 < share < 1 for share in row.progress[start:]])
    return Band(row.ranks, set(row.ranks) <= culprits, tuple(paths), mixed)


def _path(marked: Sequence[bool]) -> str:
    """Lines over the marked cells."""
    parts, at = [], 0
    for mark, run in groupby(marked):
        length = len(list(run))
        if mark:
            parts.append(f"M{at} 5h{length}")
        at += length
    return "".join(parts)
