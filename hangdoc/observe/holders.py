"""The processes that have a file open or locked. They may belong to another job, which is not observed."""

import contextlib
import os
import posixpath
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from hangdoc.observe import attach
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.snapshot import Holder

_MAX_HOLDERS = 32
_PERIOD_SECONDS = 10.0
"""What was found is valid in one period, because all ranks may wait for the same process."""


class Lock(NamedTuple):
    """A lock that a process holds on a file."""

    pid: int
    file: tuple[int, int, int]
    writes: bool
    """Whether it is exclusive."""


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


def of_lock(proc: ProcFS, wanted: tuple[int, int, int]) -> tuple[Holder, ...] | None:
    """The holders of locks on a file (proc_locks(5)), of which `identity_of` is given; None if they can't be read, or if the lock
    belongs to another host."""
    try:
        found = of(proc, dict.fromkeys(lock.pid for lock in locks(proc) if lock.file == wanted))
    except ProcError:
        return None
    return found or _heirs(proc, wanted, period()) or None


@lru_cache(8)
def _heirs(proc: ProcFS, file: tuple[int, int, int], period: int) -> tuple[Holder, ...] | None:
    """The processes that inherited a locked file from one that has ended: flock(2) locks the open file, which a fork copies."""

    def holds(pid: int, links: dict[str, str]) -> bool:
        opened = (number for number, link in links.items() if link.startswith("/"))
        return any(lock.file == file for number in opened for lock in _locks_of(proc, pid, number))

    return with_files(proc, holds)


def _locks_of(proc: ProcFS, pid: int, descriptor: str) -> list[Lock]:
    """The locks on an open file (proc_pid_fdinfo(5)); none if it was closed."""
    try:
        lines = proc.text(f"{pid}/fdinfo/{descriptor}").splitlines()
    except ProcError:
        return []
    found = (_lock(line.removeprefix("lock:").split()) for line in lines if line.startswith("lock:"))
    return [lock for lock in found if lock is not None]


def identity_of(status: os.stat_result) -> tuple[int, int, int]:
    """Major and minor number of the device and inode of a file."""
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def locks(proc: ProcFS) -> list[Lock]:
    """All locks on files of this host, if their holders are visible (proc_locks(5)). Raises ProcError."""
    found = (_lock(line.split()) for line in proc.text("locks").splitlines())
    return [lock for lock in found if lock is not None and lock.pid > 0]


def _lock(fields: list[str]) -> Lock | None:
    """A line of proc_locks(5); None for a process that waits for a lock (`->`)."""
    if len(fields) < 6 or fields[1] == "->":
        return None
    try:
        major, minor, inode = fields[5].split(":")
        return Lock(int(fields[4]), (int(major, 16), int(minor, 16), int(inode)), fields[3] == "WRITE")
    except ValueError:
        return None


def of(proc: ProcFS, pids: Iterable[int]) -> tuple[Holder, ...]:
    """The first few of some processes that are still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(ProcError):
            found.append(_holder(proc, pid))
    return tuple(found[:_MAX_HOLDERS])


def _holder(proc: ProcFS, pid: int) -> Holder:
    stat = proc.stat(str(pid))
    state = attach.settled_state(proc, pid).state if stat.state == "t" else stat.state
    return Holder(pid=pid, name=stat.name, state=state)


def period() -> int:
    """The current one: a key for caches."""
    return int(time.monotonic() / _PERIOD_SECONDS)
