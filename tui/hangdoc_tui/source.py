"""Where the app's polls come from: this host now, or bundles that were recorded."""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec

from hangdoc import codec
from hangdoc.diagnose.engine import examine
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Process, Snapshot, Stack, Unavailable, merge


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
    """This host. Native stacks hold a rank for more than half a second, so they are taken only of a run in which a rank has
    stood at one place for two polls, and kept for as long as it stands there."""

    length = None

    def __init__(self, options: Options, patience: float) -> None:
        self._options, self._patience = options, patience
        self._last: dict[int, Process] = {}
        self._earlier: Snapshot | None = None
        self._asked: dict[int, object] = {}
        """Where ranks stood when native stacks were last looked for."""
        self._native = "never"
        self.title = f"pid {', '.join(map(str, options.pids))}" if options.pids else "this host"

    def poll(self, number: int) -> Poll:
        """Look, and reason."""
        before = _cpu_seconds()
        snapshot = observe(msgspec.structs.replace(self._options, native=self._native), earlier=self._earlier)
        (host,) = snapshot.hosts
        processes = tuple(self._with_native(process) for process in host.processes)
        standing = {p.pid: _places(p) for p in processes if p.role == "rank" and self._stands(p)}
        if self._native == "auto":
            self._asked |= standing
        self._native = "auto" if any(self._asked.get(pid) != places for pid, places in standing.items()) else "never"
        self._last = {process.pid: process for process in processes}
        self._earlier = snapshot
        snapshot = msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=processes),))
        return _poll(number, snapshot, self._patience, before)

    def _with_native(self, process: Process) -> Process:
        """With the native stack of an earlier poll, where it stands there still."""
        if isinstance(process.native, Stack) or not self._stands(process):
            return process
        return msgspec.structs.replace(process, native=self._last[process.pid].native)

    def _stands(self, process: Process) -> bool:
        earlier = self._last.get(process.pid)
        return earlier is not None and _places(earlier) == _places(process) is not None


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


def _places(process: Process) -> object:
    """Where all threads of a process stand; None where its stack could not be read."""
    stack = process.stack
    if isinstance(stack, Unavailable):
        return None
    return [[(f.file, f.function, f.line) for f in thread.frames] for thread in stack.threads]


def _poll(number: int, snapshot: Snapshot, patience: float, before: float | None) -> Poll:
    diagnosis, runs = examine(snapshot, patience=patience)
    cost = _cpu_seconds() - before if before is not None else 0.0
    at = max((host.taken_at for host in snapshot.hosts), default="1970-01-01T00:00:00+00:00")
    return Poll(number, datetime.datetime.fromisoformat(at), cost, snapshot, diagnosis, runs)


def _cpu_seconds() -> float:
    """CPU of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


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
