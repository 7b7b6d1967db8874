"""When something came for which a rank waited: its wait is not older than that."""

from collections.abc import Iterable, Iterator

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import polls
from hangdoc.reasoning.ranks.movement import kernel_thread, thread_of
from hangdoc.snapshot import Clocks, Process, PythonThread

CHILD_FILES = (
    "/subprocess.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/process.py",
    "/concurrent/futures/",
)
"""Parts of the paths of the modules that wait for child processes."""
_AT_ONCE = 0.1
"""Seconds between the first and the last thread that an observer continues."""


def seconds_ago(process: Process, thread: PythonThread | None, helpers: Iterable[Process]) -> float | None:
    """How long before the observation something came for which `thread` waited, or for which a thread waited that may end its
    wait; or since when it has had its newest child process, if it waits for one. None if none of this is known."""
    helpers = tuple(helpers)
    ages = [*_woken(process, thread, helpers), *_newest_child(process, thread, helpers)]
    if process.arrival is not None:
        ages.append(process.arrival.seconds_ago)
    return min(ages, default=None)


def _woken(process: Process, thread: PythonThread | None, helpers: Iterable[Process]) -> Iterator[float]:
    """How long ago threads were woken that wait without a timeout. An observer wakes all threads of the process at once. The
    replies to a poll are not what the thread waits for."""
    own = kernel_thread(process, thread)
    others = [one for one in known.python_threads(process) if one is not thread and one.tid is not None]
    waiting = [own] if own is None or not polls(own.files) else []
    if own is not None and own.syscall == "futex":  # a lock, a queue, a future: another thread ends the wait
        waiting += [thread_of(process, one.tid) for one in others if user_frames(one)]
    waiting += [thread_of(one, one.pid) for one in helpers if any(map(user_frames, _main_threads(one)))]
    woken = [
        one.idle_seconds for one in waiting if one is not None and one.timed is False and one.idle_seconds is not None
    ]
    in_python = {one.tid for one in others} | {own.tid if own is not None else None}
    dated = process.clocks.threads if isinstance(process.clocks, Clocks) else ()
    rest = [one.idle_seconds for one in dated if one.tid not in in_python and one.idle_seconds is not None]
    return (one for one in woken if not rest or any(abs(other - one) > _AT_ONCE for other in rest))


def _main_threads(process: Process) -> Iterator[PythonThread]:
    return (one for one in known.python_threads(process) if one.tid in (None, process.pid))


def _newest_child(process: Process, thread: PythonThread | None, helpers: Iterable[Process]) -> Iterator[float]:
    if thread is not None and any(name in frame.file for frame in thread.frames for name in CHILD_FILES):
        yield from (one.started_seconds_ago for one in helpers if one.ppid == process.pid and one.state not in "ZX")
