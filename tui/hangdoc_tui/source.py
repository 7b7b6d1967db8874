"""Where the app's polls come from: this host now, or bundles that were recorded."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from hangdoc import codec
from hangdoc.diagnose.engine import examine
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.polling import cpu_seconds
from hangdoc.snapshot import Snapshot, merge


@dataclass(frozen=True)
class Poll:
    """One look at all ranks, with what was concluded. Nothing in it changes any more."""

    number: int
    at: datetime.datetime
    """When it was taken, UTC."""
    cpu_seconds: float
    """What taking it cost on all cores; 0 for a recorded one."""
    snapshot: Snapshot
    diagnosis: Diagnosis
    runs: tuple[Run, ...]


class Source(Protocol):
    """Gives polls. `length` is None for a live one, which gives another each time it is asked."""

    @property
    def title(self) -> str:
        """What is looked at."""
        ...

    @property
    def length(self) -> int | None:
        """How many polls there are."""
        ...

    def poll(self, number: int) -> Poll:
        """The poll of this number, counted from 0; blocks for as long as the look takes. Never raises for what can't be
        seen; raises BundleError for a broken bundle."""
        ...


class Live:
    """This host, or those of a fleet: whatever `look` looks at."""

    length = None

    def __init__(self, look: Callable[[], Snapshot], title: str, patience: float) -> None:
        self._look, self.title, self._patience = look, title, patience

    def poll(self, number: int) -> Poll:
        """Look, and reason."""
        before = cpu_seconds()
        return _poll(number, self._look(), self._patience, before)


class Recorded:
    """Bundles in the order in which they were taken; those of several hosts taken together are one poll."""

    def __init__(self, files: Sequence[Path], patience: float) -> None:
        """Reads every bundle once, for its time and its host; raises BundleError for one that is none."""
        self._groups = _together([(path, *_when_and_where(codec.read(path))) for path in files])
        self._patience = patience
        self.length = len(self._groups)
        self.title = files[0].name if len(files) == 1 else f"{len(files)} bundles"
        self._read = lru_cache(4)(self._load)

    def poll(self, number: int) -> Poll:
        """That one."""
        return self._read(number)

    def _load(self, number: int) -> Poll:
        snapshot = merge(tuple(codec.read(path) for path in self._groups[number]))
        return _poll(number, snapshot, self._patience, None)


def _poll(number: int, snapshot: Snapshot, patience: float, before: float | None) -> Poll:
    diagnosis, runs = examine(snapshot, patience=patience)
    cost = cpu_seconds() - before if before is not None else 0.0
    at = max((host.taken_at for host in snapshot.hosts), default="1970-01-01T00:00:00+00:00")
    return Poll(number, datetime.datetime.fromisoformat(at), cost, snapshot, diagnosis, runs)


def _when_and_where(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    return max((h.taken_at for h in snapshot.hosts), default=""), tuple(h.name for h in snapshot.hosts)


def _together(bundles: list[tuple[Path, str, tuple[str, ...]]]) -> list[list[Path]]:
    """Groups of bundles in the order of time; a host that comes again begins the next group."""
    groups: list[list[Path]] = []
    seen: set[str] = set()
    for path, _, hosts in sorted(bundles, key=lambda bundle: (bundle[1], str(bundle[0]))):
        if not groups or seen & set(hosts):
            groups.append([])
            seen = set()
        groups[-1].append(path)
        seen |= set(hosts)
    return groups
