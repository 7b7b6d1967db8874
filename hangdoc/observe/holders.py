"""The processes that have a file open or locked, and whether they are at work. They may belong to another job, which is not
observed."""

import contextlib
import os
import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from hangdoc.observe import process_table, syscalls, system_calls
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.snapshot import Holder

_MAX_HOLDERS = 3
_SAMPLE_SECONDS = 0.5
_MAX_SAMPLE_SECONDS = 3.0
"""A holder may pause between two pieces of work, like a rank (`naps`)."""
_MAX_TASKS = 100
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
    """The holders of a lock or a connection, and whether each is at work, which takes up to three seconds, once for all
    holders. `waiting`: the process that waits for them, whose own threads are observed anyway."""
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
    began, before = _first_sample(proc, period)
    if pid not in before:  # it is new, and starting is work
        began, before = _sample(proc, tree)
    time.sleep(max(0.0, began + _SAMPLE_SECONDS - time.monotonic()))
    while not _has_worked(proc, tree, before):
        if time.monotonic() >= began + _MAX_SAMPLE_SECONDS or not _wakes(proc, tree):
            return False
        time.sleep(_SAMPLE_SECONDS)
    return True


@lru_cache(1)
def _first_sample(proc: ProcFS, period: int) -> tuple[float, Mapping[int, tuple[int, int]]]:
    """When it was taken (monotonic), and what every process of the host had done by then. It serves all holders of a look."""
    return _sample(proc, proc.pids())


def _sample(proc: ProcFS, pids: Iterable[int]) -> tuple[float, Mapping[int, tuple[int, int]]]:
    return time.monotonic(), {pid: found for pid in pids if (found := _work(proc, pid)) is not None}


def _has_worked(proc: ProcFS, tree: set[int], before: Mapping[int, tuple[int, int]]) -> bool:
    ticks = size = 0
    for pid in tree:
        if (after := _work(proc, pid)) is not None:
            ticks += after[0] - before.get(pid, (0, 0))[0]
            size += after[1] - before.get(pid, (0, 0))[1]
    return ticks >= _LEAST_TICKS or size >= _LEAST_BYTES


def _work(proc: ProcFS, pid: int) -> tuple[int, int] | None:
    """CPU ticks of a process, and bytes that it has read and written; None if that can't be read."""
    try:
        stat, counts = proc.stat(str(pid)), proc.io(pid)
    except ProcError:
        return None
    return stat.cpu_ticks + stat.children_ticks, counts["rchar"] + counts["wchar"]


def _wakes(proc: ProcFS, tree: set[int]) -> bool:
    """Whether a thread of some processes wakes up by itself: it may be in a pause between two pieces of work."""
    tasks = [f"{pid}/task/{tid}" for pid in tree for tid in _tids(proc, pid)]
    return any(_is_timed(proc, task) for task in tasks[:_MAX_TASKS])


def _is_timed(proc: ProcFS, task: str) -> bool:
    try:
        call, arguments = system_calls.current(proc, task)
    except (ProcError, ValueError):
        return False
    return call is not None and (call == syscalls.RESTART or syscalls.timed(call, arguments) is True)


def _tids(proc: ProcFS, pid: int) -> list[int]:
    try:
        return proc.tids(pid)
    except ProcError:
        return []
