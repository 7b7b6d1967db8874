"""What the polls so far add up to: each rank's timeline and batches, and what changed when."""

import datetime
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdoc.diagnosis import Job, RankView
from hangdoc.render import words
from hangdoc.timeline import Recorder

_KEPT_POLLS = 240
_KEPT_EVENTS = 2000


@dataclass(frozen=True)
class Event:
    """Something changed."""

    at: datetime.datetime
    rank: int | None
    text: str
    grave: bool = False


@dataclass
class Track:
    """One rank over time. It keeps its place when the rank is restarted."""

    batches: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_KEPT_POLLS))
    """(seconds since the first poll, batches done): the beginning and the end of each time in which the number stayed."""
    last: RankView | None = None

    def count(self, seconds: float, done: int) -> None:
        """Take in a poll's number."""
        if len(self.batches) > 1 and self.batches[-1][1] == self.batches[-2][1] == done:
            self.batches.pop()
        self.batches.append((seconds, done))


class History:
    """One job's polls, summed up."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self._forget()

    def _forget(self) -> None:
        self.tracks: dict[int, Track] = {}
        self.events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._began: datetime.datetime | None = None
        self._newest: datetime.datetime | None = None
        self._verdict: str | None = None

    def add(self, at: datetime.datetime, job: Job) -> list[Event]:
        """Take in one poll of the job; what changed with it. In a recording time can go back: then all begins anew."""
        self.recorder.add(at.timestamp(), job)
        if self._newest is not None and at <= self._newest:
            self._forget()
        self._newest = at
        self._began = self._began or at
        seconds = (at - self._began).total_seconds()
        news = [*self._about_verdict(at, job), *self._about_ranks(at, job)]
        for view in job.ranks:
            track = self.tracks.setdefault(view.rank, Track())
            if view.batches_done is not None:
                track.count(seconds, view.batches_done)
            track.last = view
        self.events.extend(news)
        return news

    def front_runner(self) -> int | None:
        """Most batches that any rank has done."""
        return max((t.batches[-1][1] for t in self.tracks.values() if t.batches), default=None)

    def _about_verdict(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        if job.verdict != self._verdict:
            leading = f": {job.findings[0].code} {job.findings[0].name}" if job.findings else ""
            yield Event(at, None, f"{job.verdict}{leading}", grave=job.verdict == "hung")
            self._verdict = job.verdict

    def _about_ranks(self, at: datetime.datetime, job: Job) -> Iterator[Event]:
        for view in job.ranks:
            track = self.tracks.get(view.rank)
            before = track.last if track is not None else None
            if before is None:
                yield Event(at, view.rank, f"first seen, pid {view.pid}: {view.state}")
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
                yield Event(at, rank, "gone", grave=True)
