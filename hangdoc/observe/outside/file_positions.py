"""The file that a process reads piece by piece, although it sleeps most of the time: a reader with a rate limit.

What comes from the page cache is in no count of storage (`kernel.storage`), but the kernel shows the position in each open file
(proc_pid_fdinfo(5)). Who opens a small file again and again to look for news has no such position. Files of the kernel and
devices do not count, nor do files that are open for writing: a heartbeat writes its log in every hang.
"""

import contextlib
import os
import time
from typing import NamedTuple

from hangdoc.observe.kernel import system_calls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Clocks, FileRead

_MAX_DESCRIPTORS = 256
_SAMPLE_SECONDS = 0.5
_STALE_SECONDS = 60.0
_OF_THE_KERNEL = ("/proc/", "/sys/", "/dev/")
_Key = tuple[int, int]
"""A pid and its start, in ticks."""


class _Reading(NamedTuple):
    at: float
    """Monotonic."""
    positions: dict[tuple[str, str], int]
    """By descriptor and path."""


_earlier: dict[_Key, _Reading] = {}
"""The last reading of each process that sleeps. In `top` and `watch`, the next look needs no pause of its own."""


def find_read_file(proc: ProcFS, pid: int, start_ticks: int, clocks: Clocks) -> FileRead | None:
    """The file in which a process with a thread that sleeps got on most between two readings, at least half a second apart. None
    if it got on in none."""
    if not any(thread.syscall in system_calls.SLEEPS for thread in clocks.threads):
        return None
    key, now = (pid, start_ticks), time.monotonic()
    for other in [each for each, reading in _earlier.items() if now - reading.at > _STALE_SECONDS]:
        del _earlier[other]
    first = _earlier.get(key) or _read_positions(proc, pid)
    if not first.positions:
        return None
    time.sleep(max(0.0, first.at + _SAMPLE_SECONDS - now))
    second = _earlier[key] = _read_positions(proc, pid)
    moved = {
        path: position - first.positions[descriptor, path]
        for (descriptor, path), position in second.positions.items()
        if position > first.positions.get((descriptor, path), position)
    }
    if not moved:
        return None
    path = max(moved, key=lambda each: moved[each])
    return FileRead(path=path, bytes=moved[path], seconds=round(second.at - first.at, 3))


def _read_positions(proc: ProcFS, pid: int) -> _Reading:
    """The positions in the files that a process has open only for reading; none for what can't be read."""
    positions: dict[tuple[str, str], int] = {}
    with contextlib.suppress(ProcError):
        for descriptor, path in proc.links(f"{pid}/fd", _MAX_DESCRIPTORS).items():
            if not path.startswith("/") or path.startswith(_OF_THE_KERNEL):
                continue
            with contextlib.suppress(ProcError, ValueError, KeyError):
                lines = proc.text(f"{pid}/fdinfo/{descriptor}").splitlines()
                about = dict(line.split(":", 1) for line in lines if ":" in line)
                if int(about["flags"], 8) & os.O_ACCMODE == os.O_RDONLY:
                    positions[descriptor, path] = int(about["pos"])
    return _Reading(time.monotonic(), positions)
