"""A summary of all polls: each rank's timeline and batches, and what changed when."""

import datetime
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdoc.diagnosis import Job, RankView
from hangdoc.render import words
from hangdoc.timeline import Past, Recorder

_KEPT_POLLS = 240
_KEPT_EVENTS = 2000


@dataclass(frozen=True)
class Event:
    """Something changed."""

    at: datetime.datetime
    rank: int | None
    text: str
    serious: bool = False


@dataclass
class Track:
    """One rank over time. A restarted rank keeps its track."""

    batches: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_KEPT_POLLS))
    """(seconds since the first poll, batches done): the first and the last poll of each period with the same number."""
    last: RankView | None = None

    def count(self, seconds: float, done: int) -> None:
        """Add one poll's number of batches."""
        if len(self.batches) > 1 and self.batches[-1][1] == self.batches[-2][1] == done:
            self.batches.pop()
        self.batches.append((seconds, done))


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

    def add(self, at: datetime.datetime, job: Job, past: Past | None = None) -> list[Event]:
        """Add one poll of the job, and return what changed. If a recording goes back in time, the history starts again. `past` is
        what the ranks did before the first poll."""
        if past is not None and not self.recorder.seconds:
            self.recorder.begin(at.timestamp(), past)
        self.recorder.add(at.timestamp(), job)
        if self._newest is not None and at <= self._newest:
            self._forget()
        self._newest = at
        self._began = self._began or at
        seconds = (at - self._began).total_seconds()
        new = [*self._verdict_events(at, job), *self._rank_events(at, job)]
        for view in job.ranks:
            track = self.tracks.setdefault(view.rank, Track())
            if view.batches_done is not None:
                track.count(seconds, view.batches_done)
            track.last = view
        self.events.extend(new)
        return new

    def most_batches(self) -> int | None:
        """The largest number of batches that any rank has done."""
        return max((t.batches[-1][1] for t in self.tracks.values() if t.batches), default=None)

    def _verdict_events(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        if job.verdict != self._verdict:
            leading = f": {job.findings[0].code} {job.findings[0].name}" if job.findings else ""
            yield Event(at, None, f"{job.verdict}{leading}", serious=job.verdict == "hung")
            self._verdict = job.verdict

    def _rank_events(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        for view in job.ranks:
            track = self.tracks.get(view.rank)
            before = track.last if track is not None else None
            if before is None:
                yield Event(at, view.rank, f"first observed, pid {view.pid}: {view.state}")
            elif before.pid != view.pid and view.pid is not None:
                yield Event(at, view.rank, f"restarted: pid {view.pid} after {before.pid}")
            elif (before.label, before.state) != (view.label, view.state):
                place = words.place(view.where)
                yield Event(
                    at,
                    view.rank,
                    f"{before.state} → {view.state}" + (f" at {place}" if place else ""),
                    view.label == "dead",
                )
        there = {view.rank for view in job.ranks}
        for rank, track in self.tracks.items():
            if rank not in there and track.last is not None:
                track.last = None
                yield Event(at, rank, "gone", serious=True)
