"""When the newest file appeared in the directories of a rank that polls for files: then its wait may not be older than that.

The directories are those below the one that the process works in, and those that its arguments name. In the working directory
itself, people make files. Only names and times are read (readdir(3), stat(2)): the time of a directory changes when a file is
made, renamed or removed in it, not when one grows, as a log does. What hangdoc itself writes is nothing that a rank waits for.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Set

from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.kernel import awaited_files, system_calls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import around, tests_files
from hangdoc.snapshot import Arrival, Clocks, Loop, Stack

_MAX_DIRECTORIES = 200
_MAX_ENTRIES = 10_000
_MAX_SECONDS = 0.2
_MAX_DEPTH = 3
_AT_ONCE = 0.1
"""Seconds between the change of a directory and that of the file."""
_File = tuple[int, int]
"""Device and inode."""


def newest(
    proc: ProcFS, pid: int, start_ticks: int, argv: tuple[str, ...], stack: Stack, clocks: Clocks
) -> Arrival | None:
    """The newest change of one of these directories of the process `pid` that started at `start_ticks`; None if the main thread
    does not sleep in a loop that tests files, or if none of them can be read at once."""
    kernel = next((thread for thread in clocks.threads if thread.tid == pid), None)
    if kernel is None or kernel.syscall not in system_calls.SLEEPS or not any(map(tests_files, _loops(stack, pid))):
        return None
    try:
        home = proc.link(f"{pid}/cwd")
        named = [os.path.normpath(os.path.join(home, word)) for word in argv[1:]]
        local = [
            path
            for path in dict.fromkeys([*named, home])
            if awaited_files.at_path(proc, pid, path).mount is None  # the server of another one may not answer
        ]
        with files_of(proc, pid, start_ticks) as own:
            ours = _find_own_outputs()
            changed = own.run(lambda root: _read_times_below(root, local, ours), 2 * _MAX_SECONDS)
    except (ProcError, OSError):
        return None
    if home not in named:
        changed.pop(home, None)
    if not changed:
        return None
    folder = max(changed, key=lambda path: changed[path])
    return Arrival(folder=folder, seconds_ago=round(max(0.0, time.time() - changed[folder]), 1))


def _find_own_outputs() -> frozenset[_File]:
    """The files into which the output of this process goes: `hangdoc diagnose > report.txt`."""
    files = []
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            files.append(os.fstat(descriptor))
    return frozenset((each.st_dev, each.st_ino) for each in files if stat.S_ISREG(each.st_mode))


def _read_times_below(root: Root, paths: list[str], ours: Set[_File]) -> dict[str, float]:
    """When each of these directories, and of those below them, changed the last time (time.time()), by path."""
    until = time.monotonic() + _MAX_SECONDS
    changed: dict[str, float] = {}
    for path in paths:
        changed |= _read_times(root, path, until, ours)
    return changed


def _loops(stack: Stack, pid: int) -> Iterator[Loop]:
    """The loops that the main thread is in."""
    for thread in stack.threads:
        for frame in thread.frames if thread.tid in (None, pid) else ():
            yield from around(frame)


def _read_times(root: Root, top: str, until: float, ours: Set[_File]) -> dict[str, float]:
    """When a directory and those below it changed the last time (time.time()), by path; not of those that a hangdoc changed last.
    It ends early where there are many."""
    changed: dict[str, float] = {}
    queue = [(top, 0)]
    while queue and len(changed) < _MAX_DIRECTORIES and time.monotonic() < until:
        path, depth = queue.pop(0)
        try:
            about = root.stat(path)
            if not stat.S_ISDIR(about.st_mode):
                continue
            inside = root.entries(path, _MAX_ENTRIES)
            if not _is_last_by_hangdoc(about.st_mtime, inside, ours):
                changed[path] = about.st_mtime
            if depth == _MAX_DEPTH:
                continue
            below = [name for name, entry in inside if stat.S_ISDIR(entry.st_mode)]
        except OSError:
            continue
        queue += [(os.path.join(path, name), depth + 1) for name in below if not name.startswith((".", "__"))]
    return changed


def _is_last_by_hangdoc(changed: float, inside: Iterable[tuple[str, os.stat_result]], ours: Set[_File]) -> bool:
    """Whether only a bundle of hangdoc, or one of `ours`, can be what was made when a directory changed the last time."""
    since = [
        name.endswith(".hangdoc") or (entry.st_dev, entry.st_ino) in ours
        for name, entry in inside
        if entry.st_ctime >= changed - _AT_ONCE
    ]
    return bool(since) and all(since)
