"""The lock file for which a thread polls: it tries to get the lock, sleeps, and tries again.

No system call names the file. Its path is read from the variables of the library that polls; or it is an open file that another
process has locked (SQLite).
"""

import ast
import contextlib
import os
import posixpath
import time
from itertools import pairwise

from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.kernel import awaited_files, file_holders, system_calls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import around, path_that_must_go
from hangdoc.snapshot import IN_THE_WAY, AwaitedFile, Clocks, Frame, Local, Stack
from hangdoc.torch_facts.file_names import FILE_BATON
from hangdoc.torch_facts.frameworks import FILELOCK, FILELOCK_PATHS, SOFT_FILELOCK


def polled(
    proc: ProcFS, pid: int, start_ticks: int, stack: Stack, clocks: Clocks, variables: tuple[Local, ...] = ()
) -> AwaitedFile | None:
    """The lock file for which the main thread of the process `pid` polls, if it exists, with the processes that hold the lock; or
    a path whose end it polls for. `variables`: those of its main module."""
    kernel = next((thread for thread in clocks.threads if thread.tid == pid), None)
    if kernel is None or kernel.syscall not in system_calls.SLEEPS:
        return None
    frames = next((t.frames for t in stack.threads if t.tid == pid), ())
    for frame, caller in pairwise(frames):
        if frame.file.endswith(FILE_BATON):
            folder = _variable(caller, "build_directory")  # torch.utils.cpp_extension
            path = posixpath.join(folder, "lock") if folder else None
            return _make_awaited_file(proc, pid, start_ticks, path, by_existence=True) if path else None
        if FILELOCK in frame.file and (
            path := next(filter(None, (_variable(frame, name) for name in FILELOCK_PATHS)), None)
        ):
            soft = any(local.name == "self" and SOFT_FILELOCK in local.text for local in frame.locals)
            return _make_awaited_file(proc, pid, start_ticks, path, by_existence=soft)
    return _find_in_the_way(proc, pid, start_ticks, frames, variables) or _find_locked_by_another(
        proc, pid, start_ticks
    )


def _find_in_the_way(
    proc: ProcFS, pid: int, start_ticks: int, frames: tuple[Frame, ...], variables: tuple[Local, ...]
) -> AwaitedFile | None:
    """The path whose end a loop of the user's own code waits for, if something is there."""
    frame = next((frame for frame in frames if not frame.library), None)
    loops = around(frame) if frame is not None else []
    name = path_that_must_go(loops[-1]) if loops else None
    if frame is None or name is None:
        return None
    main = next((each for each in reversed(frames) if not each.library), frame)
    of_module = variables if main.function == "<module>" and main.file == frame.file else ()
    value = _value_of((*frame.locals, *of_module), name)
    if not value:
        return None
    try:
        path = posixpath.join(proc.link(f"{pid}/cwd"), value)
        if awaited_files.at_path(proc, pid, path).mount is not None:  # the server may not answer
            return None
        with files_of(proc, pid, start_ticks) as own:
            changed = max(own.run(lambda root: _list_times(root, path)))
    except (ProcError, OSError):
        return None
    return AwaitedFile(kind=IN_THE_WAY, name=path, changed_seconds_ago=round(max(0.0, time.time() - changed), 1))


def _list_times(root: Root, path: str) -> list[float]:
    """When what is at a path, and a link that is there, were made, changed, renamed or linked the last time (time.time())."""
    times = []
    for follow in (False, True):
        with root.place(path, follow=follow) as descriptor:
            status = os.fstat(descriptor)
            times += [status.st_mtime, status.st_ctime]
    return times


def _find_locked_by_another(proc: ProcFS, pid: int, start_ticks: int) -> AwaitedFile | None:
    """The first file that a process has open and that another one has locked for writing."""
    try:
        locks = [lock for lock in file_holders.locks(proc) if lock.writes and lock.pid != pid]
        paths = {link for link in proc.links(f"{pid}/fd").values() if link.startswith("/")} if locks else set()
        for path in sorted(path for path in paths if not path.startswith(("/dev/", "/proc/"))):
            if awaited_files.at_path(proc, pid, path).mount is not None:  # the server may not answer
                continue
            with contextlib.suppress(OSError), files_of(proc, pid, start_ticks) as own:  # it was deleted
                file = file_holders.identity_of(own.stat(path))
                if pids := dict.fromkeys(lock.pid for lock in locks if lock.file == file):
                    return AwaitedFile(kind="locked", name=path, holders=file_holders.read_holders(proc, pids))
    except ProcError:
        pass
    return None


def _variable(frame: Frame, name: str) -> str | None:
    return _value_of(frame.locals, name)


def _value_of(variables: tuple[Local, ...], name: str) -> str | None:
    """The value of the first variable with this name, if it is a string."""
    text = next((local.text for local in variables if local.name == name), "")
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, str) else None


def _make_awaited_file(
    proc: ProcFS, pid: int, start_ticks: int, path: str, *, by_existence: bool
) -> AwaitedFile | None:
    """`by_existence`: the lock is the file itself, and the process that made it keeps it open."""
    try:
        path = posixpath.join(proc.link(f"{pid}/cwd"), path)
        place = awaited_files.at_path(proc, pid, path)
        if place.mount is not None:  # the holder may be on another host, and the server may not answer
            return AwaitedFile(kind="lock", name=path, mount=place.mount)
        with files_of(proc, pid, start_ticks) as own:
            file = file_holders.identity_of(own.stat(path))
    except (ProcError, OSError):
        return None
    holders = (
        file_holders.openers(proc, path, file, file_holders.period())
        if by_existence
        else file_holders.of_lock(proc, file)
    )
    return AwaitedFile(kind="lock", name=path, holders=holders)
