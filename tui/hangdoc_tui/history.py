"""A summary of all polls: each rank's timeline and batches, and what changed when."""

import datetime
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hangdoc.diagnosis import Job, RankView
from hangdoc.render import words
from hangdoc.timeline import CALL_STATES, Past, Recorder, find_call_age
from hangdoc_tui.rates import Points, Rate, find_rate

_KEPT_POLLS = 240
_RECENT_READINGS = 16
_RATE_READINGS = 64
"""So many tell the rate."""
_MOST_SERIES = 8
"""Loops of a rank that are kept."""
_KEPT_EVENTS = 2000
_COUNT = tuple(name for name in RankView.__struct_fields__ if name.startswith("batches_"))


@dataclass(frozen=True)
class Event:
    """Something changed."""

    at: datetime.datetime
    rank: int | None
    text: str
    serious: bool = False
    at_most: bool = False
    """Whether `at` is that of the poll that saw the change, which may have been earlier. If not, a record tells when it was."""


class Track:
    """One rank over time. A restarted rank keeps its track."""

    def __init__(self) -> None:
        self.last: RankView | None = None
        """With which the next poll is compared; None if it is gone."""
        self.unchanged_at: datetime.datetime | None = None
        """It has not changed before that: its last event was then, or the window of the poll that gave `last` began then."""
        self._counted: tuple[float, RankView] | None = None
        """The newest reading with a number of batches, and when it was made."""
        self._series: dict[_Loop, _Series] = {}
        """A validation has a series of its own."""
        self._read_at = 0.0
        """When the newest reading was made."""

    @property
    def batches(self) -> Sequence[tuple[float, int]]:
        """(seconds since the first poll, batches done): the first and the last reading of each period with the same number, of
        the loop in which the rank has done the most. A period of a rank that hangs begins with its hang, which may be earlier
        than the first poll. They are counted through all epochs since that of the first poll, so the number never falls."""
        longest = self._find_longest()
        return longest.batches if longest is not None else ()

    def count(self, seconds: float, view: RankView, still_seconds: float = 0.0) -> None:
        """Add what one poll says of the rank's batches. `still_seconds`: for how long it has made no progress."""
        if view.batches_done is None:
            return
        loop, read_at = _find_loop(view), seconds - (view.batches_seconds_ago or 0.0)
        without_total = _find_loop(replace(view, batches_total=None))
        unknown = self._series.get(without_total)
        if loop not in self._series and loop != without_total and unknown is not None and unknown.may_continue(view):
            self._series[loop] = self._series.pop(without_total)
        elif loop not in self._series and len(self._series) == _MOST_SERIES:
            del self._series[min(self._series, key=lambda loop: self._series[loop].batches[-1])]
        self._read_at = max(read_at, self._read_at)
        self._counted = read_at, view
        self._series.setdefault(loop, _Series()).add(read_at, view, read_at - still_seconds)

    def with_older_count(self, seconds: float, view: RankView) -> RankView:
        """A rank whose batches were not read in the poll of `seconds`, with the number read last, and its age."""
        if view.batches_done is not None or self._counted is None or self._counted[1].pid != view.pid:
            return view
        read_at, counted = self._counted
        kept = {name: getattr(counted, name) for name in _COUNT if name != "batches_seconds_ago"}
        return replace(view, **kept, batches_seconds_ago=max(0.0, seconds - read_at))

    def find_batch_rate(self) -> Rate | None:
        """When its batches were read last; None until that is known to about a tenth. While its longest loop stands, that of the
        loop that it is in, such as a validation."""
        longest = self._find_longest()
        rate = find_rate(longest.list_counted(), self._read_at) if longest is not None else None
        if rate is None or rate.per_second:
            return rate
        newest = max(self._series.values(), key=lambda series: series.batches[-1][0])
        has_gone_on = newest.batches[-1][1] > newest.batches[0][1]
        return find_rate(newest.list_counted(), self._read_at) if has_gone_on else rate

    def _find_longest(self) -> "_Series | None":
        return max(self._series.values(), key=lambda series: series.batches[-1][1], default=None)


_Loop = tuple[int | None, tuple[str, int] | None]
"""The number of batches of a pass; if it is not known, as of a stream, the file and line of the loop, if these are known."""


def _find_loop(view: RankView) -> _Loop:
    place = view.batches_loop if view.batches_total is None else None
    return view.batches_total, (place.file, place.line) if place is not None else None


@dataclass
class _Rounds:
    """The readings of a loop over batches that have a round of a loop over numbers around it, as epochs around batches. They can
    be compared with each other, whatever was read between them."""

    _first: RankView | None = None
    _passed: int = 0
    """Batches of the epochs before that of the first reading."""
    _last: RankView | None = None
    _near_end: deque[bool] = field(default_factory=lambda: deque(maxlen=_RECENT_READINGS))
    """Whether each of the last readings is near the end of its pass. A loop may leave each pass early, or from some round on."""
    _has_several: bool = False
    """Whether one round was seen with two passes."""

    def add(self, view: RankView, passed: int) -> None:
        """Add a reading, and the batches of the epochs before its own."""
        if view.batches_round is None or view.batches_total is None:
            return
        if self._first is None or self._first.pid != view.pid:
            self._first, self._passed, self._last = view, passed, None
        before = self._last
        if before is not None and before.batches_round == view.batches_round:
            self._has_several |= before.batches_pass != view.batches_pass
        if before is None or (before.batches_pass, before.batches_done) != (view.batches_pass, view.batches_done):
            self._near_end.append(_is_near_end(view))  # one that stands is read at one number again and again
        self._last = view

    def count(self, view: RankView) -> int | None:
        """The batches of the epochs before that of a reading. None if it has no round, or if nothing shows that each round has
        one whole pass over the data."""
        first = self._first
        if first is None or first.pid != view.pid or None in (view.batches_round, view.batches_total):
            return None
        if self._has_several or not (any(self._near_end) or _is_near_end(view)):
            return None
        rounds = (view.batches_round or 0) - (first.batches_round or 0)
        return self._passed + rounds * (view.batches_total or 0)


@dataclass
class _Series:
    """The batches of one loop of a rank."""

    batches: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_KEPT_POLLS))
    _counted: RankView | None = None
    """The view of the newest reading."""
    _passed: int = 0
    """Batches of the epochs before the present one."""
    _known_from: float = 0.0
    """Since when all epochs were counted, as in `batches`. Only the calls tell of those that passed between two polls."""
    _rounds: _Rounds = field(default_factory=_Rounds)
    _by_rounds: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_KEPT_POLLS))
    """As `batches`, the readings whose epochs were counted by rounds, and those after them in the same epoch."""
    _learned: tuple[int, int] = (0, 0)
    """(calls, batches) between readings in the same epoch."""

    def add(self, read_at: float, view: RankView, reached_at: float) -> None:
        """Add a reading of a number that the rank had at `reached_at` already."""
        if self.batches and read_at <= self.batches[-1][0]:
            return  # it was not read again
        counted = False
        if self._counted is not None:
            least = _find_least_passed(self._counted, view)
            by_rounds = self._rounds.count(view)
            if by_rounds is not None and by_rounds >= self._passed + least:
                self._passed, counted = by_rounds, True
            else:
                passed = self._find_passed(self._counted, view)
                if passed is None:
                    self._known_from = read_at
                self._passed += passed if passed is not None else least
                counted = passed is not None and self._is_counted_by_rounds  # one of the end of an epoch has no round
        self._counted = view
        self._rounds.add(view, self._passed)
        done = max(self._passed + (view.batches_done or 0), self.batches[-1][1] if self.batches else 0)
        for readings in (self.batches, self._by_rounds) if counted else (self.batches,):
            _add_reading(readings, read_at, done, reached_at)

    @property
    def _is_counted_by_rounds(self) -> bool:
        """Whether its newest reading is one of those."""
        return bool(self._by_rounds) and self._by_rounds[-1][0] == self.batches[-1][0]

    def may_continue(self, view: RankView) -> bool:
        """Whether a view may be the next one of this series, whose number of batches was not known until now."""
        return self._counted is not None and (view.batches_done or 0) >= (self._counted.batches_done or 0)

    def list_counted(self) -> Points:
        """Those of its last readings between which all epochs were counted."""
        if len(self._by_rounds) > 1 and self._is_counted_by_rounds:
            return list(self._by_rounds)[-_RATE_READINGS:]
        return [(at, number) for at, number in list(self.batches)[-_RATE_READINGS:] if at >= self._known_from]

    def _find_passed(self, before: RankView, view: RankView) -> int | None:
        """The batches of the epochs that have ended between two readings of a rank; 0 if it continues, None if nothing shows how
        many. A number that falls by one, or that another source gives, is that of the same epoch: sources differ in whether
        they count the present batch."""
        same = before.pid == view.pid and before.batches_source == view.batches_source
        if not same or before.batches_pass is None or view.batches_pass is None:
            return _find_least_passed(before, view)
        calls, done = _count_calls_between(before, view), (view.batches_done or 0) - (before.batches_done or 0)
        if before.batches_pass == view.batches_pass:
            if done > 0:  # also if it made no call: with accumulation, only some batches have any
                self._learned = self._learned[0] + calls, self._learned[1] + done
            return 0
        learned_calls, learned_batches = self._learned
        if not learned_calls or calls <= 0:
            return None
        passed = calls * learned_batches / learned_calls - done
        total = before.batches_total
        return max(total * round(passed / total) if total else round(passed), _find_least_passed(before, view))


def _add_reading(readings: deque[tuple[float, int]], read_at: float, done: int, reached_at: float) -> None:
    """Add one of a number that was reached at `reached_at`. Of a period with one number, the first and the last are kept."""
    if reached_at < read_at and (not readings or readings[-1][1] < done):
        readings.append((max(reached_at, readings[-1][0]) if readings else reached_at, done))
    if len(readings) > 1 and readings[-1][1] == readings[-2][1] == done:
        readings.pop()
    readings.append((read_at, done))


def _is_near_end(view: RankView) -> bool:
    """Whether a rank has had a tenth less than all batches of its pass, or one."""
    done, total = view.batches_done or 0, view.batches_total
    return total is not None and done >= min(0.9 * total, total - 1)


def _find_least_passed(before: RankView, view: RankView) -> int:
    """The batches of an epoch that has ended between two readings, if no more than one has."""
    fallen = (before.batches_done or 0) - (view.batches_done or 0)
    if before.pid != view.pid:
        return before.batches_done or 0
    another = None not in (before.batches_pass, view.batches_pass) and before.batches_pass != view.batches_pass
    if (fallen <= 1 and not another) or before.batches_source != view.batches_source:
        return 0
    return max(before.batches_done or 0, before.batches_total or 0)


def _count_calls_between(before: RankView, view: RankView) -> int:
    """The calls that a rank has made between two readings, by its record, in the groups that both show. A group that is called
    only at times, as for checkpoints, is missing in a reading of the last calls."""
    earlier, later = _list_made(before), _list_made(view)
    return sum(made - earlier[group] for group, made in later.items() if group in earlier)


def _list_made(view: RankView) -> dict[str | None, int]:
    """How many calls a rank has made in each group, by its record."""
    return {each.group: each.made for each in view.calls if each.source != "inferred" and each.made is not None}


def _only_passes(before: RankView, view: RankView) -> bool:
    """Whether a rank made progress and still does, and is now seen in a wait: in some polls its stack is not read, and another
    moment shows it elsewhere. So that is no change."""
    return before.pid == view.pid and view.label == "blocked" and words.moves(view) and words.moves(before)


class History:
    """A summary of one job's polls."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self._forget()

    def _forget(self) -> None:
        self.tracks: dict[int, Track] = {}
        self.events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._began: datetime.datetime | None = None
        self._newest: datetime.datetime | None = None
        self._verdict: str | None = None
        self._leading = ""
        """The first finding, by code and name; empty for none."""

    @property
    def seconds(self) -> float:
        """The time of the newest poll, since the first one."""
        return (self._newest - self._began).total_seconds() if self._newest and self._began else 0.0

    def add(self, at: datetime.datetime, job: Job, past: Past | None = None) -> list[Event]:
        """Add one poll of the job, and return what changed. If a recording goes back in time, the history starts again. `past` is
        what the ranks did before the first poll."""
        if past is not None and not self.recorder.seconds:
            self.recorder.begin(at.timestamp(), past)
        self.recorder.add(at.timestamp(), job)
        if self._newest is not None and at <= self._newest:
            self._forget()
        window_began, self._newest = self._newest or at, at
        self._began = self._began or at
        seconds = (at - self._began).total_seconds()
        new = [*self._verdict_events(at, job), *self._rank_events(at, job)]
        for view in job.ranks:
            track = self.tracks.setdefault(view.rank, Track())
            stands = view.label == "blocked" and view.progress is None
            track.count(seconds, view, job.hung_for_seconds or 0.0 if stands else 0.0)
            if track.last is None or not _only_passes(track.last, view):
                track.last, track.unchanged_at = view, window_began
        for event in new:
            if event.rank is not None:
                track = self.tracks[event.rank]
                track.unchanged_at = max(event.at, track.unchanged_at or event.at)
        if new:  # a change is younger than the rank's earlier ones, but may be older than those of others
            self.events = deque(sorted([*self.events, *new], key=lambda event: event.at), maxlen=_KEPT_EVENTS)
        return new

    def fill_counts(self, job: Job) -> Job:
        """The job of the newest poll, in which ranks that moved and were not read have their last numbers of batches."""
        unread = set(words.find_unread(job.ranks)) & self.tracks.keys()
        if not unread:
            return job
        views = (
            self.tracks[view.rank].with_older_count(self.seconds, view) if view.rank in unread else view
            for view in job.ranks
        )
        return replace(job, ranks=tuple(views))

    def _verdict_events(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        leading = f"{job.findings[0].code} {job.findings[0].name}" if job.findings else ""
        if (job.verdict, leading) != (self._verdict, self._leading):
            over = f"{self._leading} is no longer found" if job.verdict == self._verdict else ""
            text = ": ".join(filter(None, (job.verdict, leading or over)))
            yield Event(at, None, text, serious=job.verdict == "hung")
            self._verdict, self._leading = job.verdict, leading

    def _rank_events(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        for view in job.ranks:
            track = self.tracks.get(view.rank)
            before = track.last if track is not None else None
            if before is None:
                yield Event(at, view.rank, f"first observed, pid {view.pid}: {view.state}")
            elif before.pid != view.pid and view.pid is not None:
                yield Event(at, view.rank, f"restarted: pid {view.pid} after {before.pid}", at_most=True)
            elif (before.label, before.state) != (view.label, view.state) and not _only_passes(before, view):
                place, at_place = words.place(view.where), ", last call at " if words.is_last_call(view) else " at "
                text = f"{before.state} → {view.state}" + (f"{at_place}{place}" if place else "")
                called = _find_call_time(at, view, track)
                yield Event(called or at, view.rank, text, view.label == "dead", at_most=called is None)
        there = {view.rank for view in job.ranks}
        for rank, track in self.tracks.items():
            if rank not in there and track.last is not None:
                track.last = None
                yield Event(at, rank, "gone", serious=True, at_most=True)


def _find_call_time(at: datetime.datetime, view: RankView, track: Track | None) -> datetime.datetime | None:
    """When a rank made the call in which the poll of `at` sees it, by its record. None if no record tells, or if it has been seen
    elsewhere since: it computed after it had started the call."""
    age = find_call_age(view) if view.state in CALL_STATES else None
    if age is None or track is None or track.unchanged_at is None:
        return None
    called = at - datetime.timedelta(seconds=age)
    return called if called > track.unchanged_at else None
