"""When the newest file appeared in the directories of a rank that polls for files: then its wait may not be older than that.

The directories are those below the one that the process works in, and those that its arguments name. In the working directory
itself, people make files. Only names and times are read (readdir(3), stat(2)): the time of a directory changes when a file is
made, renamed or removed in it, not when one grows, as a log does.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from hangdoc.observe import files, syscalls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import around, tests_files
from hangdoc.snapshot import Arrival, Clocks, Loop, Stack

_MAX_DIRECTORIES = 200
_MAX_SECONDS = 0.2
_MAX_DEPTH = 3


def newest(proc: ProcFS, pid: int, argv: tuple[str, ...], stack: Stack, clocks: Clocks) -> Arrival | None:
    """The newest change of one of these directories; None if the main thread does not sleep in a loop that tests files, or if
    none of them can be read at once."""
    kernel = next((one for one in clocks.threads if one.tid == pid), None)
    if kernel is None or kernel.syscall not in syscalls.SLEEPS or not any(map(tests_files, _loops(stack, pid))):
        return None
    found: dict[str, float] = {}
    # A directory may be a link to a mount, or hold one, whose server does not answer: then the thread is abandoned.
    search = threading.Thread(target=_search, args=(proc, pid, argv, found), daemon=True)
    search.start()
    search.join(2 * _MAX_SECONDS)
    if search.is_alive() or not found:
        return None
    folder = max(found, key=lambda path: found[path])
    return Arrival(folder=folder, seconds_ago=round(max(0.0, time.time() - found[folder]), 1))


def _search(proc: ProcFS, pid: int, argv: tuple[str, ...], found: dict[str, float]) -> None:
    """Fill in when each directory changed the last time."""
    until = time.monotonic() + _MAX_SECONDS
    with contextlib.suppress(ProcError):
        home = proc.link(f"{pid}/cwd")
        named = [os.path.normpath(os.path.join(home, word)) for word in argv[1:]]
        for root in dict.fromkeys([*named, home]):
            if files.at_path(proc, pid, root).mount is None:  # the server of another one may not answer
                found.update(_times(f"{proc.root}/{pid}/root", root, until))
        if home not in named:
            found.pop(home, None)


def _loops(stack: Stack, pid: int) -> Iterator[Loop]:
    """The loops that the main thread is in."""
    for thread in stack.threads:
        for frame in thread.frames if thread.tid in (None, pid) else ():
            yield from around(frame)


def _times(prefix: str, root: str, until: float) -> dict[str, float]:
    """When a directory and those below it changed the last time (time.time()), by path. It ends early where there are many."""
    found: dict[str, float] = {}
    queue = [(root, 0)]
    while queue and len(found) < _MAX_DIRECTORIES and time.monotonic() < until:
        path, depth = queue.pop(0)
        try:
            with os.scandir(prefix + path) as entries:
                found[path] = os.stat(prefix + path).st_mtime
                below = [one.name for one in entries if one.is_dir(follow_symlinks=False)] if depth < _MAX_DEPTH else []
        except OSError:
            continue
        queue += [(os.path.join(path, name), depth + 1) for name in below if not name.startswith((".", "__"))]
    return found
