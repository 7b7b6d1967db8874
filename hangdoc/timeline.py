"""What each rank did at each poll, as a frozen value: a row of cells per rank, or per ranks that belong together.

`top` draws it as its first view, and the HTML page draws it too. `Recorder` makes it from one `Job` per poll.
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
- `data`: its dataloader works on the next batch.
- `moving`: in a collective, a send or a receive, and it has moved since the poll before: bytes passed, or it stands elsewhere.
- `waiting`: blocked, and nothing of it has moved.
- `dead`: its process has ended.
- `unseen`: it was not observed, or was not there yet.
"""
CELLS: tuple[Cell, ...] = ("computing", "data", "moving", "waiting", "dead", "unseen")
PROGRESS: frozenset[Cell] = frozenset({"computing", "data", "moving"})
"""Cells of a rank that makes progress."""

_KEPT_POLLS = 600
_MOST_ROWS = 64
_CODE: dict[Cell, int] = {cell: code for code, cell in enumerate(CELLS)}
_UNSEEN = _CODE["unseen"]
_GRAVEST_FIRST = ("dead", "waiting", "unseen", "moving", "data", "computing")
_OPERATIONS = ("in-collective", "in-p2p")
_FIRST_POLL_SECONDS = 1.0
"""How recent a byte must be at the first poll, which has no poll before it."""


class Row(Struct, frozen=True, kw_only=True):
    """One line of the timeline."""

    ranks: tuple[int, ...]
    """Ascending."""
    cells: tuple[Cell, ...]
    """One for each poll, the newest last; of several ranks `dead` where any of them is, else what most of them did."""
    progress: tuple[float, ...] = ()
    """One for each poll: the share (0 to 1) of the ranks that were `computing`, `data` or `moving`. It is never rounded to 0 or
    1, so a single rank that differs can be seen. Empty where all ranks of the row did what `cells` says."""

    @property
    def shares(self) -> tuple[float, ...]:
        """`progress`, also where it follows from the cells."""
        return self.progress or tuple(float(cell in PROGRESS) for cell in self.cells)


class Timeline(Struct, frozen=True, kw_only=True):
    """All rows, over the same polls."""

    seconds: tuple[float, ...]
    """The time of each poll relative to the newest, ascending: the last is 0, all others are negative."""
    rows: tuple[Row, ...]

    def last_progress(self) -> int | None:
        """The position in `seconds` of the last poll in which any rank made progress; None where none did."""
        moved = (at for row in self.rows for at, share in enumerate(row.shares) if share)
        return max(moved, default=None)


class Recorder:
    """Keeps what the ranks of one job did, for the last `polls` polls: one byte for each rank and poll."""

    def __init__(self, polls: int = _KEPT_POLLS) -> None:
        self._position: dict[int, int] = {}
        """Of each rank in the bytes of a poll. Ranks that come later are appended."""
        self._polls: deque[tuple[float, bytes]] = deque(maxlen=polls)
        self._before: dict[int, object] = {}
        self._last_progress: float | None = None

    @property
    def seconds(self) -> tuple[float, ...]:
        """The time of each poll that is kept, relative to the newest."""
        newest = self._polls[-1][0] if self._polls else 0.0
        return tuple(seconds - newest for seconds, _ in self._polls)

    @property
    def still(self) -> int | None:
        """How many polls ago any rank last made progress; None where that is not among the polls that are kept."""
        ago = (at for at, (seconds, _) in enumerate(reversed(self._polls)) if seconds == self._last_progress)
        return next(ago, None)

    def newest(self) -> dict[int, Cell]:
        """What each rank did at the newest poll; empty before the first."""
        if not self._polls:
            return {}
        return {rank: CELLS[code] for rank, code in zip(self._position, self._polls[-1][1], strict=True)}

    def add(self, seconds: float, job: Job) -> None:
        """Take in a poll. `seconds` is its time on any clock, the same for all polls; a poll that is not later than those before
        (somebody turned back in a recording) replaces all that are not earlier than it."""
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
            elsewhere = view.rank in self._before and self._before[view.rank] != place
            codes[self._position[view.rank]] = _CODE[_cell(view, since, elsewhere)]
        self._before = places
        self._polls.append((seconds, bytes(codes)))
        if _progresses(bytes(codes)):
            self._last_progress = seconds

    def timeline(self, groups: Iterable[Sequence[int]] | None = None, *, polls: int | None = None) -> Timeline:
        """The last `polls` polls (all that are kept for None), a row for each group of ranks. Without groups: a row for each set
        of ranks that did the same at each poll, or for neighbours where that would be more than 64 rows."""
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
    """Ranks in at most `most` groups of neighbours, each of the same power of two but for the last."""
    ordered = sorted(ranks)
    size = 1
    while size * max(1, most) < len(ordered):
        size *= 2
    return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]


def _progresses(codes: bytes) -> bool:
    return any(_CODE[cell] in codes for cell in PROGRESS)


def _tally(codes: bytes) -> tuple[Cell, float]:
    """(the cell of several ranks, the share of those that made progress)."""
    counts = {cell: codes.count(_CODE[cell]) for cell in CELLS}
    most = max(counts, key=lambda cell: (counts[cell], -_GRAVEST_FIRST.index(cell)))
    return "dead" if counts["dead"] else most, sum(counts[cell] for cell in PROGRESS) / len(codes)


def together(cells: Iterable[Cell]) -> tuple[Cell, float]:
    """(the cell of several ranks that did this, the share of those that made progress)."""
    return _tally(bytes(_CODE[cell] for cell in cells))


def _cell(view: RankView, since: float, elsewhere: bool) -> Cell:
    """`since` is how many seconds ago the poll before was; `elsewhere` says whether the rank stands elsewhere since then."""
    if view.label is None:
        return "unseen"
    if view.label == "dead":
        return "dead"
    if view.label == "computing":
        return "data" if view.state == "loading-data" else "computing"
    fresh = view.silent_seconds is not None and view.silent_seconds < since
    return "moving" if view.state in _OPERATIONS and (elsewhere or fresh) else "waiting"
