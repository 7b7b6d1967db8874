"""When the newest file appeared in the directories of a rank that polls for files: then its wait may not be older than that.

The directories are those below the one that the process works in, and those that its arguments name. In the working directory
itself, people make files. Only names and times are read (readdir(3), stat(2)): the time of a directory changes when a file is
made, renamed or removed in it, not when one grows, as a log does. Bundles of hangdoc, and the file into which this one
writes its report, are nothing that a rank waits for.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Set

from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.kernel import awaited_files, system_calls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import around, tests_files
from hangdoc.snapshot import Arrival, Clocks, Loop, Stack

_MAX_DIRECTORIES = 200
_MAX_ENTRIES = 10_000
_MAX_SECONDS = 0.2
_MAX_DEPTH = 3
_MAX_BY_HANGDOC = 8
"""Directories that hangdoc changed last."""
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
            left_out = home if home not in named else None
            changed = own.run(lambda root: _read_times_below(root, local, left_out, ours), 2 * _MAX_SECONDS)
    except (ProcError, OSError):
        return None
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


def _read_times_below(root: Root, paths: list[str], home: str | None, ours: Set[_File]) -> dict[str, float]:
    """When each of these directories but `home`, and of those below them, changed the last time (time.time()), by path."""
    until = time.monotonic() + _MAX_SECONDS
    changed: dict[str, float] = {}
    for path in paths:
        changed |= _read_times(root, path, until)
    if home is not None:
        changed.pop(home, None)
    for _ in range(_MAX_BY_HANGDOC if changed else 0):
        newest = max(changed, key=lambda path: changed[path])
        earlier = _change_before_hangdoc(root, newest, changed[newest], ours)
        if earlier == changed[newest]:
            break
        changed[newest] = earlier
    return {path: at for path, at in changed.items() if at > 0}


def _change_before_hangdoc(root: Root, path: str, changed: float, ours: Set[_File]) -> float:
    """When a directory changed before a bundle of hangdoc, or one of `ours`, was made in it. `changed` if none of these was made
    last, and 0 if nothing else is in it."""
    try:
        inside = root.entries(path, _MAX_ENTRIES)
    except OSError:
        return changed
    times = [
        (entry.st_ctime, name.endswith(".hangdoc") or (entry.st_dev, entry.st_ino) in ours) for name, entry in inside
    ]
    last = [by_hangdoc for at, by_hangdoc in times if at >= changed - _AT_ONCE]
    if not last or not all(last) or len(inside) == _MAX_ENTRIES:
        return changed
    return max((at for at, by_hangdoc in times if not by_hangdoc), default=0.0)


def _loops(stack: Stack, pid: int) -> Iterator[Loop]:
    """The loops that the main thread is in."""
    for thread in stack.threads:
        for frame in thread.frames if thread.tid in (None, pid) else ():
            yield from around(frame)


def _read_times(root: Root, top: str, until: float) -> dict[str, float]:
    """When a directory and those below it changed the last time (time.time()), by path. It ends early where there are many."""
    changed: dict[str, float] = {}
    queue = [(top, 0)]
    while queue and len(changed) < _MAX_DIRECTORIES and time.monotonic() < until:
        path, depth = queue.pop(0)
        try:
            about = root.stat(path)
            if not stat.S_ISDIR(about.st_mode):
                continue
            changed[path] = about.st_mtime
            inside = root.entries(path, _MAX_ENTRIES) if depth < _MAX_DEPTH else []
            below = [name for name, entry in inside if stat.S_ISDIR(entry.st_mode)]
        except OSError:
            continue
        queue += [(os.path.join(path, name), depth + 1) for name in below if not name.startswith((".", "__"))]
    return changed
