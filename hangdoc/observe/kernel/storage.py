"""Bytes that each process read from and wrote to storage in the window, and how far it got in its open files: writing a
checkpoint is progress.

Source: /proc/PID/io, `read_bytes` and `write_bytes` (proc_pid_io(5)), which do not count sockets and pipes, and the positions in
its files where `rchar` or `wchar` show that it read or wrote anything.
"""

import time
from collections.abc import Callable, Iterable, Set

import msgspec

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.kernel.file_positions import Positions, find_progress, read_positions
from hangdoc.procfs import ProcError
from hangdoc.snapshot import FileBytes, FileProgress, Unavailable

_MOST_FILES = 4
_KEPT_SECONDS = 300.0
"""A process that sleeps for longer than a window gets on in each second one, or fewer."""

_Reading = dict[str, int] | Unavailable
"""As `ProcFS.io`."""


class Storage:
    """The probe."""

    name = "storage"

    def __init__(self) -> None:
        self.find_counting: Callable[[Observation], Set[int]] | None = None
        """Tells which ranks have made calls in the window, and so need no other sign that they move."""
        self._first: dict[int, _Reading] = {}
        self._second: dict[int, _Reading] = {}
        self._first_positions: dict[int, Positions] = {}
        self._second_positions: dict[int, Positions] = {}
        self._got_on: dict[int, tuple[float, tuple[FileProgress, ...]]] = {}
        """The last window in which a process got on in a file: its end (monotonic), and the files."""
        self._closed_at = 0.0

    def open(self, observation: Observation) -> None:
        """Read every rank's and helper's counters and positions."""
        pids = [target.pid for target in observation.alive() if target.role != "launcher"]
        self._first |= {pid: _read(observation, pid) for pid in pids}
        self._first_positions |= {pid: read_positions(observation.proc, pid) for pid in pids}
        for pid in pids:  # it may be that of another process before
            self._got_on.pop(pid, None)

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the counters again, and the positions of those that read or wrote anything."""
        self._second = {pid: _read(observation, pid) for pid in self._first if pid in observation.targets}
        counting = self.find_counting(observation) if self.find_counting is not None else frozenset[int]()
        unclear = {
            pid for pid, now in self._second.items() if now != self._first[pid] or pid not in self._first_positions
        }
        read = {
            pid: read_positions(observation.proc, pid)
            for pid in unclear
            if counting.isdisjoint({pid, observation.targets[pid].owner or pid})
        }
        self._second_positions = {pid: self._first_positions[pid] for pid in self._second.keys() - unclear} | read
        now = time.monotonic()
        self._got_on = {pid: (at, files) for pid, (at, files) in self._got_on.items() if now - at <= _KEPT_SECONDS}
        for pid in read:
            progress = find_progress(self._first_positions.get(pid, {}), read[pid])
            if files := tuple(sorted(progress, key=lambda file: -file.bytes)[:_MOST_FILES]):
                self._got_on[pid] = now, files
        self._closed_at = now

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first, self._first_positions = self._second, self._second_positions

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The differences."""
        for pid, first in self._first.items():
            second = self._second.get(pid, first)
            if isinstance(first, Unavailable) or isinstance(second, Unavailable):
                yield pid, "files", first if isinstance(first, Unavailable) else second
                continue
            at, files = self._got_on.get(pid, (self._closed_at, ()))
            ago = round(self._closed_at - at, 1)
            yield (
                pid,
                "files",
                FileBytes(
                    read_bytes=second["read_bytes"] - first["read_bytes"],
                    written_bytes=second["write_bytes"] - first["write_bytes"],
                    progress=tuple(msgspec.structs.replace(file, seconds_ago=ago) for file in files),
                ),
            )


def _read(observation: Observation, pid: int) -> _Reading:
    try:
        return observation.proc.io(pid)
    except ProcError as error:
        return Unavailable(reason=str(error))
