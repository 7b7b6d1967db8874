"""What each rank did at each poll, as a frozen value: one row of cells per rank or group of ranks.

The first view of `top` and the HTML page draw it. `Recorder` makes it from one `Job` per poll, and for the time before the first
poll from a `Past`, which torch's record of calls shows (`hangdoc.reasoning.views.past`).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from msgspec import Struct

from hangdoc.diagnosis import Job, RankView

Cell = Literal["computing", "data", "moving", "waiting", "stopped", "dead", "unseen"]
"""What a rank did at one poll.

- `computing`: CPU or GPU work, compiling, checkpointing, evaluating.
- `data`: its dataloader loads the next batch.
- `moving`: in a collective, a send or a receive, with progress since the previous poll: bytes passed, or its calls, its place
  or its batches differ from what one of the last polls read. What no other of these has read is no progress. If its last call
  or byte shows that it has waited for most of the time since then, it is `waiting`.
- `waiting`: blocked without progress.
- `stopped`: by a signal, a debugger or a freezer: it waits for no other rank.
- `dead`: its process has ended.
- `unseen`: it was not observed, or did not exist yet.
"""
WORDS: dict[Cell, str] = {
    "computing": "computing", "data": "data", "moving": "communicating", "waiting": "waiting",
    "stopped": "stopped", "dead": "dead", "unseen": "not observed",
}  # fmt: skip
"""What each is called in legends."""
CELLS: tuple[Cell, ...] = ("computing", "data", "moving", "waiting", "stopped", "dead", "unseen")
PROGRESS: frozenset[Cell] = frozenset({"computing", "data", "moving"})
"""Cells of a rank that makes progress."""

_KEPT_POLLS = 600
_COMPARED_POLLS = 3
"""What was read longer ago shows no progress of now."""
_MOST_ROWS = 64
_CODE: dict[Cell, int] = {cell: code for code, cell in enumerate(CELLS)}
_UNSEEN = _CODE["unseen"]
_MOST_SEVERE_FIRST = ("dead", "stopped", "waiting", "unseen", "moving", "data", "computing")
CALL_STATES = ("in-collective", "in-p2p")
"""States of a rank that waits in a call."""
_FIRST_POLL_SECONDS = 1.0
"""At the first poll, bytes of this last second count as progress."""


class Row(Struct, frozen=True, kw_only=True):
    """One line of the timeline."""

    ranks: tuple[int, ...]
    """Ascending."""
    cells: tuple[Cell, ...]
    """One for each poll, the newest last. For several ranks, `dead` if any of them is dead, else what most of them did."""
    progress: tuple[float, ...] = ()
    """One for each poll: the share (0 to 1) of ranks that were `computing`, `data` or `moving`; where a record of calls shows how
    long they waited in them, the share of their time for which they did not. It is never rounded to 0 or 1, so that one
    differing rank remains visible. Empty if all ranks of the row did the same as `cells`."""

    @property
    def shares(self) -> tuple[float, ...]:
        """`progress`, or the same computed from the cells if `progress` is empty."""
        return self.progress or tuple(float(cell in PROGRESS) for cell in self.cells)


class Timeline(Struct, frozen=True, kw_only=True):
    """All rows, over the same polls."""

    seconds: tuple[float, ...]
    """The time of each poll relative to the newest, ascending: the last is 0, all others are negative."""
    rows: tuple[Row, ...]
    recorded: int = 0
    """How many of the first cells are not polls: torch's record shows them, from the time before the first poll."""

    def last_progress(self) -> int | None:
        """The position in `seconds` of the last poll in which any rank made progress; None if none did."""
        progressed = (at for row in self.rows for at, share in enumerate(row.shares) if share)
        return max(progressed, default=None)


class Past(Struct, frozen=True, kw_only=True):
    """What the ranks did before the first poll, in cells that need not be equally long."""

    seconds: tuple[float, ...]
    """The end of each cell relative to the first poll, ascending. The last one is where the window of that poll began."""
    cells: dict[int, tuple[tuple[Cell, float], ...]]
    """By rank: what it did for most of each cell, and the share of the cell in which it did not wait."""


class _Poll(NamedTuple):
    seconds: float
    codes: bytes
    """One for each rank."""
    shares: bytes | None = None
    """The share of the time for which each rank made progress and did not wait, in 255ths; None if only the codes are known."""
    past: bool = False
    """Whether it is a cell of the time before the first poll."""


class _Progress(NamedTuple):
    seen: float
    """The time of the poll that saw it."""
    least: float
    """It was not before that."""


class Recorder:
    """Records what the ranks of one job did in the last `polls` polls: one byte per rank and poll."""

    def __init__(self, polls: int = _KEPT_POLLS) -> None:
        self._position: dict[int, int] = {}
        """Position of each rank in the bytes of a poll. New ranks are appended."""
        self._polls: deque[_Poll] = deque(maxlen=polls)
        self._read: dict[int, dict[object, tuple[object, int]]] = {}
        """What the last polls read of each rank: (value, number of the poll)."""
        self._count = 0
        self._progressed: dict[int, _Progress] = {}
        """The last progress of each rank, by its position."""
        self._stands: dict[int, float] = {}
        """Since when each rank stands, as the newest poll tells, by its position."""

    @property
    def seconds(self) -> tuple[float, ...]:
        """The time of each recorded poll, relative to the newest."""
        newest = self._polls[-1].seconds if self._polls else 0.0
        return tuple(poll.seconds - newest for poll in self._polls)

    @property
    def recorded(self) -> int:
        """How many of them are cells of the past."""
        return sum(poll.past for poll in self._polls)

    @property
    def polls_since_progress(self) -> int | None:
        """The number of polls since any rank last made progress; None if no recorded poll has progress."""
        last = max((progress.seen for progress in self._progressed.values()), default=None)
        return next((at for at, poll in enumerate(reversed(self._polls)) if poll.seconds == last), None)

    @property
    def seconds_since_progress(self) -> float | None:
        """For how many seconds no rank has made progress. Since when a rank stands, its record, the kernel or the beginning of
        the hang tells more exactly than the poll that saw it; None if no recorded poll has progress."""
        if not self._progressed:
            return None
        times = (self._stands.get(at, progress.seen) for at, progress in self._progressed.items())
        return self._polls[-1].seconds - max(times)

    def find_used(self, polls: int) -> frozenset[Cell]:
        """All that ranks did at any of the last `polls` polls."""
        kept = self._list_last(polls)
        return frozenset(cell for cell, code in _CODE.items() if any(code in poll.codes for poll in kept))

    def has_parts(self, polls: int) -> bool:
        """Whether a rank waited for a part of the time of any of the last `polls` polls."""
        return any(0 < share < 255 for poll in self._list_last(polls) for share in poll.shares or ())

    def count_recorded(self, polls: int) -> int:
        """How many of the last `polls` polls are cells of the past."""
        return sum(poll.past for poll in self._list_last(polls))

    def _list_last(self, polls: int | None) -> list[_Poll]:
        return list(self._polls)[max(0, len(self._polls) - polls) :] if polls is not None else list(self._polls)

    def newest(self) -> dict[int, Cell]:
        """What each rank did at the newest poll; empty before the first."""
        if not self._polls:
            return {}
        return {rank: CELLS[code] for rank, code in zip(self._position, self._polls[-1].codes, strict=True)}

    def begin(self, seconds: float, past: Past) -> None:
        """Put the past before the first poll, whose time is `seconds`."""
        for rank in past.cells:
            self._position.setdefault(rank, len(self._position))
        for at, end in enumerate(past.seconds):
            codes, shares = bytearray([_UNSEEN]) * len(self._position), bytearray(len(self._position))
            for rank, cells in past.cells.items():
                cell, share = cells[at]
                codes[self._position[rank]] = _CODE[cell]
                shares[self._position[rank]] = _in_255ths(share)
            self._append(_Poll(seconds + end, bytes(codes), bytes(shares), past=True))

    def add(self, seconds: float, job: Job) -> None:
        """Record a poll. `seconds` is its time, on the same clock for all polls. A poll that is not later than the previous one
        (a recording was rewound) replaces all polls from that time on."""
        if self._polls and self._polls[-1].seconds >= seconds:
            earlier = [poll for poll in self._polls if poll.seconds < seconds]
            self._polls = deque(maxlen=self._polls.maxlen)
            self._read, self._progressed = {}, {}
            for poll in earlier:
                self._append(poll)
        since = seconds - self._polls[-1].seconds if self._polls else _FIRST_POLL_SECONDS
        for rank in (*(view.rank for view in job.ranks), *(unseen.rank for unseen in job.unseen)):
            self._position.setdefault(rank, len(self._position))
        codes = bytearray([_UNSEEN]) * len(self._position)
        shares = {view.rank: 1 - view.waited_share for view in job.ranks if view.waited_share is not None}
        self._count += 1
        for view in job.ranks:
            codes[self._position[view.rank]] = _CODE[_cell(view, since, moved=self._has_moved(view))]
        self._append(_Poll(seconds, bytes(codes), self._shares(codes, shares) if shares else None))
        self._stands = {}
        for view in job.ranks:
            at = self._position[view.rank]
            stood_since = _find_stand(view, seconds, self._progressed[at], job) if at in self._progressed else None
            if stood_since is not None:
                self._stands[at] = stood_since

    def _append(self, poll: _Poll) -> None:
        """Keep a poll, and when each rank made progress last."""
        self._polls.append(poll)
        recent = self._polls[max(0, len(self._polls) - 1 - _COMPARED_POLLS)].seconds
        for at, code in enumerate(poll.codes):
            if poll.shares[at] if poll.shares is not None else CELLS[code] in PROGRESS:
                self._progressed[at] = _Progress(poll.seconds, recent)

    def _has_moved(self, view: RankView) -> bool:
        """Whether a poll read something else of a rank than one of the last polls. A poll of a busy host reads less."""
        before, now = self._read.get(view.rank, {}), _list_readings(view)
        if "pid" in before and before["pid"][0] != view.pid:
            before = {}
        recent = {what: read for what, read in before.items() if self._count - read[1] <= _COMPARED_POLLS}
        self._read[view.rank] = recent | {what: (value, self._count) for what, value in now.items()}
        return any(what in recent and recent[what][0] != value for what, value in now.items())

    def _shares(self, codes: Sequence[int], shares: Mapping[int, float]) -> bytes:
        """A rank that makes progress has waited for less than the whole time."""
        parts = bytearray(len(codes))
        for rank, at in self._position.items():
            if CELLS[codes[at]] in PROGRESS:
                parts[at] = max(1, _in_255ths(shares.get(rank, 1.0)))
        return bytes(parts)

    def timeline(self, groups: Iterable[Sequence[int]] | None = None, *, polls: int | None = None) -> Timeline:
        """The timeline of the last `polls` polls (None: all), with a row for each group of ranks. Without `groups`, ranks that
        did the same at each poll share a row; if that gives more than 64 rows, consecutive ranks share a row."""
        kept = self._list_last(polls)
        if not kept:
            return Timeline(seconds=(), rows=())
        newest = kept[-1].seconds
        width = len(self._position)
        kept = [
            _Poll(
                poll.seconds,
                poll.codes.ljust(width, bytes([_UNSEEN])),
                poll.shares.ljust(width, b"\0") if poll.shares is not None else None,
                poll.past,
            )
            for poll in kept
        ]
        rows = [self._row(tuple(sorted(group)), kept) for group in (self._alike(kept) if groups is None else groups)]
        return Timeline(
            seconds=tuple(poll.seconds - newest for poll in kept),
            rows=tuple(rows),
            recorded=sum(poll.past for poll in kept),
        )

    def _alike(self, polls: Sequence[_Poll]) -> list[tuple[int, ...]]:
        together: dict[tuple[int, ...], list[int]] = {}
        for rank, history in zip(self._position, zip(*(poll.codes for poll in polls), strict=True), strict=True):
            together.setdefault(history, []).append(rank)
        if len(together) <= _MOST_ROWS:
            return sorted(tuple(sorted(ranks)) for ranks in together.values())
        return blocks(self._position, _MOST_ROWS)

    def _row(self, ranks: tuple[int, ...], polls: Sequence[_Poll]) -> Row:
        at = [self._position[rank] for rank in ranks if rank in self._position]
        if not at:
            return Row(ranks=ranks, cells=tuple(CELLS[_UNSEEN] for _ in polls))
        if len(at) == 1 and all(poll.shares is None for poll in polls):
            return Row(ranks=ranks, cells=tuple(CELLS[poll.codes[at[0]]] for poll in polls))
        pick = itemgetter(*at) if len(at) > 1 else lambda values: (values[at[0]],)
        tallies = [
            _tally(
                bytes(pick(poll.codes)), bytes(pick(poll.shares)) if poll.shares is not None else None, past=poll.past
            )
            for poll in polls
        ]
        return Row(ranks=ranks, cells=tuple(cell for cell, _ in tallies), progress=tuple(share for _, share in tallies))


def blocks(ranks: Iterable[int], most: int) -> list[tuple[int, ...]]:
    """Divide ranks into at most `most` groups of consecutive ranks. All but the last have the same size, a power of two."""
    ordered = sorted(ranks)
    size = 1
    while size * max(1, most) < len(ordered):
        size *= 2
    return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]


def _find_stand(view: RankView, seconds: float, progress: _Progress, job: Job) -> float | None:
    """The time since which a rank stands: since its call, or else since the hang of its run began, if it made no progress after
    that. None if neither tells. `seconds` is the time of this poll."""
    called = _find_call(view, seconds, progress)
    if called is not None or view.label != "blocked" or view.progress is not None or job.hung_for_seconds is None:
        return called
    began = seconds - job.hung_for_seconds
    return began if progress.least <= began <= progress.seen else None


def _find_call(view: RankView, seconds: float, progress: _Progress) -> float | None:
    """The time at which a rank made the call that it stands in, or exchanged data since: by its record or the kernel, if the poll
    that saw its last progress was right after that. None if neither tells: a rank may compute after the start of a call, and wait
    for its end later. `seconds` is the time of this poll."""
    if view.state not in CALL_STATES or view.progress is not None:
        return None
    age = _age_of_last_sign(view)
    at = seconds - age if age is not None else None
    return at if at is not None and progress.least <= at else None


def _age_of_last_sign(view: RankView) -> float | None:
    """Seconds since a rank made its last recorded call, or exchanged its last byte after that; None if neither is known."""
    ages = (*(calls.age_seconds for calls in view.calls if calls.source == "recorder"), view.silent_seconds)
    return min((age for age in ages if age is not None), default=None)


def find_call_age(view: RankView) -> float | None:
    """Seconds since a rank made the call that it waits in, by its record: its first unfinished one, in the group in which it is
    seen if that has one. None without such a record."""
    ages = {
        calls.group: calls.age_seconds
        for calls in view.calls
        if calls.source == "recorder" and calls.pending is not None and calls.age_seconds is not None
    }
    group = view.operation.group if view.operation is not None else None
    return ages.get(group, min(ages.values(), default=None))


def _in_255ths(share: float) -> int:
    """Never rounded to none or all."""
    return round(share) * 255 if share in (0, 1) else max(1, min(254, round(share * 255)))


def _tally(codes: bytes, shares: bytes | None = None, *, past: bool = False) -> tuple[Cell, float]:
    """(cell of several ranks, share of them or of their time that made progress; of a cell of the past, only of those of which
    something is known)."""
    counts = {cell: codes.count(_CODE[cell]) for cell in CELLS}
    most = max(counts, key=lambda cell: (counts[cell], -_MOST_SEVERE_FIRST.index(cell)))
    if past and shares is not None:
        observed = len(codes) - counts["unseen"]
        return most, sum(shares) / 255 / observed if observed and most != "unseen" else 0.0
    progress = sum(shares) / 255 if shares is not None else sum(counts[cell] for cell in PROGRESS)
    return "dead" if counts["dead"] else most, progress / len(codes)


def together(cells: Iterable[Cell]) -> tuple[Cell, float]:
    """(cell of several ranks with these cells, share of them that made progress)."""
    return _tally(bytes(_CODE[cell] for cell in cells))


def _list_readings(view: RankView) -> dict[object, object]:
    """What a poll read of a rank that only progress changes, each under what it is and where it comes from. A poll of a busy host
    reads less: what two sources say of the same call differs without progress."""
    operation, where = view.operation, view.where
    readings: dict[object, object] = {
        "pid": view.pid,
        "label": view.label,
        ("line", view.where_source): (where.file, where.line, where.function) if where is not None else None,
        ("batches", view.batches_source, view.batches_loop): view.batches_done,
    }
    if operation is not None:
        call = (operation.op, operation.group, operation.peer, operation.origin)
        readings["call", view.where_source, operation.seq is None] = call
        readings["seq", operation.group] = operation.seq
    readings |= {("made", calls.group, calls.source): calls.made for calls in view.calls}
    return {what: value for what, value in readings.items() if value is not None}


def _cell(view: RankView, since: float, *, moved: bool) -> Cell:
    """The cell of a rank. `since` is the time since the previous poll in seconds; `moved` says that its location has changed."""
    if view.label is None:
        return "unseen"
    if view.label == "dead":
        return "dead"
    if view.label == "computing" or (view.progress is not None and view.state not in CALL_STATES):
        return "data" if view.state == "loading-data" else "computing"
    if view.state == "stopped":
        return "stopped"
    fresh = view.silent_seconds is not None and view.silent_seconds < since
    if view.state not in CALL_STATES or not (moved or fresh):
        return "waiting"
    return "waiting" if _waited_for_most(view, since, moved=moved) else "moving"


def _waited_for_most(view: RankView, since: float, *, moved: bool) -> bool:
    """Whether a rank has waited in its call for more than half of the time since the previous poll. A rank of which the share is
    known is drawn with it. The last byte may be older than a call that is not recorded."""
    if view.waited_share is not None or (moved and find_call_age(view) is None):
        return False
    age = _age_of_last_sign(view)
    return age is not None and age > since / 2
