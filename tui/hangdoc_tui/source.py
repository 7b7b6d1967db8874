"""Where the app's polls come from: this host now, or recorded bundles."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import psutil

from hangdoc import codec
from hangdoc.commands.looking import Looker, describe_no_rank
from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.look.polling import cpu_seconds
from hangdoc.reasoning.causes.pace import run_pace
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.ledger.lags import Pace
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.views.past import past_cells
from hangdoc.snapshot import Snapshot, merge
from hangdoc.timeline import Past

_LEAST_SECONDS = 1.0
"""A cell of the time before the first poll is at least as long as the usual time between two polls."""


@dataclass(frozen=True)
class Poll:
    """One snapshot of all ranks and its diagnosis. It never changes."""

    number: int
    at: datetime.datetime
    """When it was taken, UTC."""
    cpu_seconds: float
    """CPU time that the poll took, on all cores; 0 for a recorded one."""
    snapshot: Snapshot
    diagnosis: Diagnosis
    runs: tuple[Run, ...]
    pasts: Mapping[str, Past] = field(default_factory=dict)
    """What the ranks of each job did before it, by the job's id: only of jobs of which it is the first poll. Without jobs that
    have no record."""
    paces: Mapping[str, Pace] = field(default_factory=dict)
    """Who comes late to the calls of each job, by its id. Without jobs that have no record."""
    no_rank: str = ""
    """Why no process in the trees of the named pids is a rank; empty if one is, and if no pid was named."""


class Source(Protocol):
    """Where polls come from. `length` is None for a live source, which gives a new poll at each call."""

    @property
    def title(self) -> str:
        """What is observed, in words."""
        ...

    @property
    def length(self) -> int | None:
        """How many polls there are."""
        ...

    def poll(self, number: int) -> Poll:
        """The poll of this number, counted from 0. Blocks until it is taken. What can't be observed raises nothing; a damaged
        bundle raises BundleError."""
        ...

    def confirms(self) -> bool | None:
        """Whether what the last poll has shown of the ranks is still so; None if only a poll can tell."""
        ...


class Live:
    """Polls of this host, or of the hosts of a fleet."""

    length = None

    def __init__(self, looker: Looker, title: str, patience: float, pids: tuple[int, ...] = ()) -> None:
        """`pids`: those of this host at whose trees it looks, if they were named."""
        self._looker, self.title, self._patience, self._pids = looker, title, patience, pids
        self._saw_job = False
        self._first_polls: dict[str, int] = {}
        """Of each job, as of Recorded."""

    def poll(self, number: int) -> Poll:
        """Take a snapshot and diagnose it."""
        before = cpu_seconds()
        poll = _make_poll(number, self._looker.look(), self._patience, self._first_polls, before)
        self._saw_job = self._saw_job or bool(poll.diagnosis.jobs)
        if self._saw_job or not any(map(psutil.pid_exists, self._pids)):  # what has ended was no stranger
            return poll
        return replace(poll, no_rank=describe_no_rank(self._pids))

    def confirms(self) -> bool | None:
        """As the looker says."""
        return self._looker.confirms()


class Recorded:
    """Bundles in the order of their time. The bundles of several hosts of one look are one poll."""

    def __init__(self, files: Sequence[Path], patience: float) -> None:
        """Reads every bundle once, for its time and its hosts. Raises BundleError for a file that is not a bundle."""
        self._groups = _group_bundles([(path, *_describe_snapshot(codec.read(path))) for path in files])
        self._patience = patience
        self._first_polls: dict[str, int] = {}
        """The number of the first poll in which each job was seen, by its id."""
        self.length = len(self._groups)
        self.title = files[0].name if len(files) == 1 else f"{len(files)} bundles"
        self._read = lru_cache(4)(self._load)

    def poll(self, number: int) -> Poll:
        """The poll of this number. The last four are kept."""
        return self._read(number)

    def confirms(self) -> None:
        """A recording has only polls."""

    def _load(self, number: int) -> Poll:
        snapshot = merge(tuple(codec.read(path) for path in self._groups[number]))
        return _make_poll(number, snapshot, self._patience, self._first_polls)


def _make_poll(
    number: int, snapshot: Snapshot, patience: float, first_polls: dict[str, int], before: float | None = None
) -> Poll:
    """`first_polls`: the number of the first poll of each job, by its id. Jobs that it lacks are added."""
    diagnosis, runs = examine(snapshot, patience=patience)
    cost = cpu_seconds() - before if before is not None else 0.0
    at = max((host.taken_at for host in snapshot.hosts), default="1970-01-01T00:00:00+00:00")
    new = [run for run in runs if first_polls.setdefault(run.id, number) == number]
    pasts = {run.id: past_cells(run, least_seconds=_LEAST_SECONDS) for run in new}
    paces = {run.id: run_pace(run) for run in runs}
    return Poll(
        number,
        datetime.datetime.fromisoformat(at),
        cost,
        snapshot,
        diagnosis,
        runs,
        {job: past for job, past in pasts.items() if past is not None},
        {job: pace for job, pace in paces.items() if pace is not None},
    )


def _describe_snapshot(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    return max((h.taken_at for h in snapshot.hosts), default=""), tuple(h.name for h in snapshot.hosts)


def _group_bundles(bundles: list[tuple[Path, str, tuple[str, ...]]]) -> list[list[Path]]:
    """Groups of bundles in the order of time. A host that appears again starts the next group."""
    groups: list[list[Path]] = []
    seen: set[str] = set()
    for path, _, hosts in sorted(bundles, key=lambda bundle: (bundle[1], str(bundle[0]))):
        if not groups or seen & set(hosts):
            groups.append([])
            seen = set()
        groups[-1].append(path)
        seen |= set(hosts)
    return groups
