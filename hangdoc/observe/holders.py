"""The processes that have a file open or locked. They may belong to another job, which is not observed."""

import contextlib
import os
import posixpath
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.snapshot import Holder

_MAX_HOLDERS = 32
_PERIOD_SECONDS = 10.0
"""What was found is valid in one period, because all ranks may wait for the same process."""


@lru_cache(8)
def openers(proc: ProcFS, path: str, period: int) -> tuple[Holder, ...] | None:
    """The processes that have a file open, by the path that their links show; None if none was found and there may be one: a
    process could not be read or is in another pid namespace, or it shows a file of this name below another root."""
    name = f"/{posixpath.basename(path)}"

    def holds(pid: int, links: dict[str, str]) -> bool | None:
        return path in links.values() or (None if any(link.endswith(name) for link in links.values()) else False)

    found = with_files(proc, holds)
    return found if found or proc.shows_all() else None


def with_files(proc: ProcFS, holds: Callable[[int, dict[str, str]], bool | None]) -> tuple[Holder, ...] | None:
    """The first few processes for whose pid and open files `holds` is true; None if there is none, but it is None for one, or one
    could not be read."""
    held: list[Holder] = []
    hidden = False
    for pid in proc.pids():
        try:
            found = holds(pid, proc.links(f"{pid}/fd"))
            if found:
                held.append(_holder(proc, pid))
            hidden = hidden or found is None
        except Gone:
            continue
        except (ProcError, ValueError):
            hidden = True
        if len(held) == _MAX_HOLDERS:
            break
    return None if hidden and not held else tuple(held)


def of_lock(proc: ProcFS, pid: int, path: str) -> tuple[Holder, ...] | None:
    """The holders of locks on a file for which process `pid` waits (proc_locks(5)); None if that can't be read, or if the lock
    belongs to another host."""
    try:
        wanted = file_of(path)
        return of(proc, dict.fromkeys(lock.pid for lock in locks(proc) if lock.file == wanted)) or None
    except (OSError, ProcError):
        return None


class Lock(NamedTuple):
    """A lock that a process holds on a file."""

    pid: int
    file: tuple[int, int, int]
    writes: bool
    """Whether it is exclusive."""


def file_of(path: str) -> tuple[int, int, int]:
    """Major and minor number of the device and inode of a file. Raises OSError."""
    status = os.stat(path)
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def locks(proc: ProcFS) -> list[Lock]:
    """All locks on files of this host, if their holders are visible (proc_locks(5)). Raises ProcError."""
    found = []
    for fields in (line.split() for line in proc.text("locks").splitlines()):
        if len(fields) < 6 or fields[1] == "->":  # "->" marks a process that waits for the lock
            continue
        try:
            major, minor, inode = fields[5].split(":")
            lock = Lock(int(fields[4]), (int(major, 16), int(minor, 16), int(inode)), fields[3] == "WRITE")
        except ValueError:
            continue
        if lock.pid > 0:
            found.append(lock)
    return found


def of(proc: ProcFS, pids: Iterable[int]) -> tuple[Holder, ...]:
    """The first few of some processes that are still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(ProcError):
            found.append(_holder(proc, pid))
    return tuple(found[:_MAX_HOLDERS])


def _holder(proc: ProcFS, pid: int) -> Holder:
    stat = proc.stat(str(pid))
    return Holder(pid=pid, name=stat.name, state=stat.state)


def period() -> int:
    """The current one: a key for caches."""
    return int(time.monotonic() / _PERIOD_SECONDS)
