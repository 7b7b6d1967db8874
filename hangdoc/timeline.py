"""What each rank did at each poll, as a frozen value: one row of cells per rank or group of ranks.

The first view of `top` and the HTML page draw it. `Recorder` makes it from one `Job` per poll.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal

from msgspec import Struct

from hangdoc.diagnosis import Job, RankView

Cell = Literal["computing", "data", "moving", "waiting", "dead", "unseen"]
"""What a rank did at one poll.

- `computing`: CPU or GPU work, compiling, checkpointing, evaluating.
- `data`: its dataloader loads the next batch.
- `moving`: in a collective, a send or a receive, with progress since the previous poll: bytes passed, or its location changed.
- `waiting`: blocked without progress.
- `dead`: its process has ended.
- `unseen`: it was not observed, or did not exist yet.
"""
CELLS: tuple[Cell, ...] = ("computing", "data", "moving", "waiting", "dead", "unseen")
PROGRESS: frozenset[Cell] = frozenset({"computing", "data", "moving"})
"""Cells of a rank that makes progress."""

_KEPT_POLLS = 600
_MOST_ROWS = 64
_CODE: dict[Cell, int] = {cell: code for code, cell in enumerate(CELLS)}
_UNSEEN = _CODE["unseen"]
_MOST_SEVERE_FIRST = ("dead", "waiting", "unseen", "moving", "data", "computing")
_OPERATIONS = ("in-collective", "in-p2p")
_FIRST_POLL_SECONDS = 1.0
"""At the first poll, bytes of this last second count as progress."""


class Row(Struct, frozen=True, kw_only=True):
    """One line of the timeline."""

    ranks: tuple[int, ...]
    """Ascending."""
    cells: tuple[Cell, ...]
    """One for each poll, the newest last. For several ranks, `dead` if any of them is dead, else what most of them did."""
    progress: tuple[float, ...] = ()
    """One for each poll: the share (0 to 1) of ranks that were `computing`, `data` or `moving`. It is never rounded to 0 or 1,
    so that one differing rank remains visible. Empty if all ranks of the row did the same as `cells`."""

    @property
    def shares(self) -> tuple[float, ...]:
        """`progress`, or the same computed from the cells if `progress` is empty."""
        return self.progress or tuple(float(cell in PROGRESS) for cell in self.cells)


class Timeline(Struct, frozen=True, kw_only=True):
    """All rows, over the same polls."""

    seconds: tuple[float, ...]
    """The time of each poll relative to the newest, ascending: the last is 0, all others are negative."""
    rows: tuple[Row, ...]

    def last_progress(self) -> int | None:
        """The position in `seconds` of the last poll in which any rank made progress; None if none did."""
        progressed = (at for row in self.rows for at, share in enumerate(row.shares) if share)
        return max(progressed, default=None)


class Recorder:
    """Records what the ranks of one job did in the last `polls` polls: one byte per rank and poll."""

    def __init__(self, polls: int = _KEPT_POLLS) -> None:
        self._position: dict[int, int] = {}
        """Position of each rank in the bytes of a poll. New ranks are appended."""
        self._polls: deque[tuple[float, bytes]] = deque(maxlen=polls)
        self._before: dict[int, object] = {}
        self._last_progress: float | None = None

    @property
    def seconds(self) -> tuple[float, ...]:
        """The time of each recorded poll, relative to the newest."""
        newest = self._polls[-1][0] if self._polls else 0.0
        return tuple(seconds - newest for seconds, _ in self._polls)

    @property
    def polls_since_progress(self) -> int | None:
        """The number of polls since any rank last made progress; None if no recorded poll has progress."""
        ago = (at for at, (seconds, _) in enumerate(reversed(self._polls)) if seconds == self._last_progress)
        return next(ago, None)

    def newest(self) -> dict[int, Cell]:
        """What each rank did at the newest poll; empty before the first."""
        if not self._polls:
            return {}
        return {rank: CELLS[code] for rank, code in zip(self._position, self._polls[-1][1], strict=True)}

    def add(self, seconds: float, job: Job) -> None:
        """Record a poll. `seconds` is its time, on the same clock for all polls. A poll that is not later than the previous one
        (a recording was rewound) replaces all polls from that time on."""
        if self._polls and self._polls[-1][0] >= seconds:
            earlier = [poll for poll in self._polls if poll[0] < seconds]
            self._polls = deque(earlier, self._polls.maxlen)
            self._before = {}
            self._last_progress = next((at for at, codes in reversed(earlier) if _progresses(codes)), None)
        since = seconds - self._polls[-1][0] if self._polls else _FIRST_POLL_SECONDS
        for rank in (*(view.rank for view in job.ranks), *(one.rank for one in job.unseen)):
            self._position.setdefault(rank, len(self._position))
        codes = bytearray([_UNSEEN]) * len(self._position)
        places: dict[int, object] = {}
        for view in job.ranks:
            places[view.rank] = place = (view.operation, view.where, view.batches_done)
            moved = view.rank in self._before and self._before[view.rank] != place
            codes[self._position[view.rank]] = _CODE[_cell(view, since, moved)]
        self._before = places
        self._polls.append((seconds, bytes(codes)))
        if _progresses(bytes(codes)):
            self._last_progress = seconds

    def timeline(self, groups: Iterable[Sequence[int]] | None = None, *, polls: int | None = None) -> Timeline:
        """The timeline of the last `polls` polls (None: all), with a row for each group of ranks. Without `groups`, ranks that
        did the same at each poll share a row; if that gives more than 64 rows, consecutive ranks share a row."""
        kept = list(self._polls)[-polls:] if polls is not None else list(self._polls)
        if polls == 0 or not kept:
            return Timeline(seconds=(), rows=())
        newest = kept[-1][0]
        width = len(self._position)
        codes = [poll.ljust(width, bytes([_UNSEEN])) for _, poll in kept]
        rows = [self._row(tuple(sorted(group)), codes) for group in (self._alike(codes) if groups is None else groups)]
        return Timeline(seconds=tuple(seconds - newest for seconds, _ in kept), rows=tuple(rows))

    def _alike(self, codes: Sequence[bytes]) -> list[tuple[int, ...]]:
        together: dict[tuple[int, ...], list[int]] = {}
        for rank, history in zip(self._position, zip(*codes, strict=True), strict=True):
            together.setdefault(history, []).append(rank)
        if len(together) <= _MOST_ROWS:
            return sorted(tuple(sorted(ranks)) for ranks in together.values())
        return blocks(self._position, _MOST_ROWS)

    def _row(self, ranks: tuple[int, ...], codes: Sequence[bytes]) -> Row:
        at = [self._position[rank] for rank in ranks if rank in self._position]
        if not at:
            return Row(ranks=ranks, cells=tuple(CELLS[_UNSEEN] for _ in codes))
        if len(at) == 1:
            return Row(ranks=ranks, cells=tuple(CELLS[poll[at[0]]] for poll in codes))
        pick = itemgetter(*at)
        tallies = [_tally(bytes(pick(poll))) for poll in codes]
        return Row(ranks=ranks, cells=tuple(cell for cell, _ in tallies), progress=tuple(share for _, share in tallies))


def blocks(ranks: Iterable[int], most: int) -> list[tuple[int, ...]]:
    """Divide ranks into at most `most` groups of consecutive ranks. All but the last have the same size, a power of two."""
    ordered = sorted(ranks)
    size = 1
    while size * max(1, most) < len(ordered):
        size *= 2
    return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]


def _progresses(codes: bytes) -> bool:
    return any(_CODE[cell] in codes for cell in PROGRESS)


def _tally(codes: bytes) -> tuple[Cell, float]:
    """(cell of several ranks, share of them that made progress)."""
    counts = {cell: codes.count(_CODE[cell]) for cell in CELLS}
    most = max(counts, key=lambda cell: (counts[cell], -_MOST_SEVERE_FIRST.index(cell)))
    return "dead" if counts["dead"] else most, sum(counts[cell] for cell in PROGRESS) / len(codes)


def together(cells: Iterable[Cell]) -> tuple[Cell, float]:
    """(cell of several ranks with these cells, share of them that made progress)."""
    return _tally(bytes(_CODE[cell] for cell in cells))


def _cell(view: RankView, since: float, moved: bool) -> Cell:
    """The cell of a rank. `since` is the time since the previous poll in seconds; `moved` says that its location has changed."""
    if view.label is None:
        return "unseen"
    if view.label == "dead":
        return "dead"
    if view.label == "computing":
        return "data" if view.state == "loading-data" else "computing"
    fresh = view.silent_seconds is not None and view.silent_seconds < since
    return "moving" if view.state in _OPERATIONS and (moved or fresh) else "waiting"
