"""The processes that have a file open or locked, and whether they are at work. They may belong to another job, which is not
observed."""

import contextlib
import os
import posixpath
import time
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from hangdoc.observe import process_table
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.snapshot import Holder

_MAX_HOLDERS = 3
_SAMPLE_SECONDS = 0.5
_LEAST_TICKS = 2
"""CPU time in the sample: a process that wakes up to check something uses less."""
_LEAST_BYTES = 4096
_PERIOD_SECONDS = 10.0
"""What was found is valid in one period, because all ranks may wait for one lock."""


def of_lock_file(proc: ProcFS, pid: int, path: str) -> tuple[Holder, ...] | None:
    """The holders of a lock that is the file itself, for which process `pid` waits. Its maker keeps it open. None as for
    `openers`."""
    return at_work(proc, openers(proc, path, period()), pid)


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
        status = os.stat(path)
        lines = proc.text("locks").splitlines()
    except (OSError, ProcError):
        return None
    wanted = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    held: list[Holder] = []
    for fields in (line.split() for line in lines):
        if len(fields) < 6 or fields[1] == "->":  # "->" marks a process that waits for the lock
            continue
        major, _, rest = fields[5].partition(":")
        minor, _, inode = rest.partition(":")
        try:
            if (int(major, 16), int(minor, 16), int(inode)) == wanted and int(fields[4]) > 0:
                held.append(_holder(proc, int(fields[4])))
        except (ProcError, ValueError):
            continue
    return at_work(proc, tuple(held[:_MAX_HOLDERS]) or None, pid)


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


def at_work(proc: ProcFS, found: tuple[Holder, ...] | None, waiting: int) -> tuple[Holder, ...] | None:
    """The holders of a lock or a connection, and whether each is at work, which takes half a second. `waiting`: the process that
    waits for them, whose own threads are observed anyway."""
    if not found:
        return found
    above = process_table.read_ancestry(proc, waiting)
    return tuple(
        msgspec.structs.replace(
            one, works=one.pid != waiting and _works(proc, one.pid, period(), alone=one.pid in above)
        )
        for one in found
    )


@lru_cache(64)
def _works(proc: ProcFS, pid: int, period: int, *, alone: bool) -> bool:
    """Whether a process or a descendant uses a processor, reads or writes. `alone`: only itself, because it is an ancestor of the
    process that waits for it."""
    tree = {pid} if alone else process_table.read(proc).tree(pid)
    before = _work(proc, tree)
    time.sleep(_SAMPLE_SECONDS)
    after = _work(proc, tree)
    return after[0] - before[0] >= _LEAST_TICKS or after[1] - before[1] >= _LEAST_BYTES


def _work(proc: ProcFS, tree: set[int]) -> tuple[int, int]:
    """CPU ticks, and bytes read and written, of some processes."""
    ticks = size = 0
    for pid in tree:
        try:
            stat, counts = proc.stat(str(pid)), proc.io(pid)
        except ProcError:
            continue
        ticks += stat.cpu_ticks + stat.children_ticks
        size += counts["rchar"] + counts["wchar"]
    return ticks, size
