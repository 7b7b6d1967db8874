"""The processes that have a file open or locked. They may belong to another job, which is not observed."""

import contextlib
import os
import posixpath
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from functools import lru_cache
from typing import NamedTuple, TypeVar

from hangdoc.observe.access import isolation
from hangdoc.observe.access.shares import Turns
from hangdoc.observe.kernel import process_states, process_table
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.snapshot import Holder

_MAX_HOLDERS = 32
_PERIOD_SECONDS = 10.0
"""What was found is valid in one period, because all ranks may wait for the same process."""


_MAX_LINKS = 16_384
"""Open files of one process. A rank of a large run has some thousand sockets."""
_MOST_LINKS = 300_000
"""Open files of all processes of one user. Reading them takes half a second."""
_REFUSED = 1_000
"""What a process counts that could not be read, although its files were counted."""
S = TypeVar("S", bound=Sized)
Identity = tuple[int, int, int]
"""Major and minor number of the device, and the inode."""


class Lock(NamedTuple):
    """A lock that a process holds on a file."""

    pid: int
    file: Identity
    writes: bool
    """Whether it is exclusive."""


@lru_cache(8)
def openers(proc: ProcFS, path: str, file: Identity, period: int) -> tuple[Holder, ...] | None:
    """The processes that have a file open: one at a path with this name, which is the file itself, because others have files at
    the same path in mount namespaces of their own. None if none was found and there may be one: a process could not be read or is
    in another pid namespace."""
    name = f"/{posixpath.basename(path)}"

    def holds(pid: int, links: dict[str, str]) -> bool:
        alike = (number for number, link in links.items() if link.endswith(name))
        return any(identity_of(proc.open_file(pid, int(number))) == file for number in alike)

    holders = with_files(proc, holds)
    return holders if holders or proc.shows_all() else None


def with_files(proc: ProcFS, holds: Callable[[int, dict[str, str]], bool]) -> tuple[Holder, ...] | None:
    """The first few processes for whose pid and open files `holds` is true; None if there is none, but one could not be read."""
    held: list[Holder] = []
    hidden = False
    for pid, links in open_files(proc):
        try:
            if links is None:
                hidden = True
            elif holds(pid, links):
                held.append(_read_holder(proc, pid))
        except Gone:
            continue
        except (ProcError, ValueError):
            hidden = True
        if len(held) == _MAX_HOLDERS:
            break
    return None if hidden and not held else tuple(held)


def open_files(proc: ProcFS, pids: Collection[int] | None = None) -> Iterator[tuple[int, dict[str, str] | None]]:
    """The links in /proc/PID/fd of some processes, or of every one; None for one that can't be read."""
    return each_of_host(proc, lambda pid: proc.links(f"{pid}/fd", _MAX_LINKS), _MOST_LINKS, pids)


def each_of_host(
    proc: ProcFS, read: Callable[[int], S], most: int, pids: Collection[int] | None = None
) -> Iterator[tuple[int, S | None]]:
    """`read` of every process of the host, or of `pids`; None for one that can't be read, or not in the time that
    `isolation.searching` gives. The processes of one user may have `most` in all (elements, bytes), and users take turns, so that
    they can't use up the time in which others are read."""
    taken: Counter[int | None] = Counter()
    seconds: defaultdict[int | None, float] = defaultdict(float)
    turns = Turns(pids if pids is not None else proc.pids())
    with isolation.searching() as search:
        users = {pid: process_table.user_of(proc, pid) for pid in turns.waiting()}
        turns.share_out(users.__getitem__)
        while (pid := turns.take(seconds)) is not None:
            user, began = users[pid], time.monotonic()
            if search.remaining() <= 0 or (taken[user] > most and user != 0):
                yield pid, None
                continue
            try:
                result = read(pid)
            except Gone:
                continue
            except ProcError:
                taken[user] += _REFUSED
                yield pid, None
            else:
                taken[user] += len(result)
                yield pid, result
            seconds[user] += time.monotonic() - began


def of_lock(proc: ProcFS, wanted: Identity) -> tuple[Holder, ...] | None:
    """The holders of locks on a file (proc_locks(5)), of which `identity_of` is given; None if they can't be read, or if the lock
    belongs to another host."""
    try:
        holders = read_holders(proc, dict.fromkeys(lock.pid for lock in locks(proc) if lock.file == wanted))
    except ProcError:
        return None
    return holders or _find_heirs(proc, wanted, period()) or None


@lru_cache(8)
def _find_heirs(proc: ProcFS, file: Identity, period: int) -> tuple[Holder, ...] | None:
    """The processes that inherited a locked file from one that has ended: flock(2) locks the open file, which a fork copies."""

    def holds(pid: int, links: dict[str, str]) -> bool:
        opened = (number for number, link in links.items() if link.startswith("/"))
        return any(lock.file == file for number in opened for lock in _read_locks_of(proc, pid, number))

    return with_files(proc, holds)


def _read_locks_of(proc: ProcFS, pid: int, descriptor: str) -> list[Lock]:
    """The locks on an open file (proc_pid_fdinfo(5)); none if it was closed."""
    try:
        lines = proc.text(f"{pid}/fdinfo/{descriptor}").splitlines()
    except ProcError:
        return []
    parsed = (_parse_lock(line.removeprefix("lock:").split()) for line in lines if line.startswith("lock:"))
    return [lock for lock in parsed if lock is not None]


def identity_of(status: os.stat_result) -> Identity:
    """Which file it is."""
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def locks(proc: ProcFS) -> list[Lock]:
    """All locks on files of this host, if their holders are visible (proc_locks(5)). Raises ProcError."""
    parsed = (_parse_lock(line.split()) for line in proc.text("locks").splitlines())
    return [lock for lock in parsed if lock is not None and lock.pid > 0]


def _parse_lock(fields: list[str]) -> Lock | None:
    """A line of proc_locks(5); None for a process that waits for a lock (`->`)."""
    if len(fields) < 6 or fields[1] == "->":
        return None
    try:
        major, minor, inode = fields[5].split(":")
        return Lock(int(fields[4]), (int(major, 16), int(minor, 16), int(inode)), fields[3] == "WRITE")
    except ValueError:
        return None


def read_holders(proc: ProcFS, pids: Iterable[int]) -> tuple[Holder, ...]:
    """The first few of some processes that are still there."""
    holders = []
    for pid in pids:
        with contextlib.suppress(ProcError):
            holders.append(_read_holder(proc, pid))
    return tuple(holders[:_MAX_HOLDERS])


def _read_holder(proc: ProcFS, pid: int) -> Holder:
    stat = proc.stat(str(pid))
    state = process_states.settled_state(proc, pid).state if stat.state == "t" else stat.state
    return Holder(pid=pid, name=stat.name, state=state)


def period() -> int:
    """The current one: a key for caches."""
    return int(time.monotonic() / _PERIOD_SECONDS)
