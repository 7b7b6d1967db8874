"""Waits for files and pipes: providers of `thread_waits`."""

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import Ends, InFile, ReadsPipe, are_stopped, is_held_only_by
from hangdoc.reasoning.ranks import locks
from hangdoc.reasoning.ranks.waiter import ThreadWait, Waiter, describe_file, is_fifo

_STUCK_IN_FILES = ("nfs", "rpc_wait", "fuse", "wait_for_partner", "folio_wait", "io_schedule", "request_wait", "ceph",
                   "cifs", "lustre", "cl_sync", "pipe_write", "anon_pipe_write", "pipe_wait")  # fmt: skip
_WAKES_BY_OBSERVERS = 4


def for_files(waiter: Waiter) -> ThreadWait | None:
    """In a system call on a file that does not return: a file server, a full pipe, a FIFO that nobody opens."""
    gil = _blocks_writer_by_gil(waiter)
    if gil is not None or waiter.reads_pipe:
        return gil
    file, wchan = waiter.file, waiter.wchan
    if (
        (waiter.kernel is not None and waiter.kernel.state == "D")
        or any(word in wchan for word in _STUCK_IN_FILES)
        or waiter.call in system_calls.ON_FILES
        or (file is not None and file.kind == "path")
    ):
        what = describe_file(file) or f"wchan {wchan or waiter.call}"
        return ThreadWait("waiting-io", f"in a file system call ({what})", _make_in_file(waiter))
    return None


def _blocks_writer_by_gil(waiter: Waiter) -> ThreadWait | None:
    """A thread that reads from its own process and keeps the GIL: the thread that should write cannot run."""
    others = (thread for thread in observed.python_threads(waiter.process) if thread is not waiter.thread)
    if not any(map(user_frames, others)):
        return None
    if not (_opens_fifo(waiter) or _is_abandoned(waiter)) or not locks.keeps_gil(waiter.process, waiter.thread):
        return None
    gil = locks.find_lock(waiter.process, waiter.thread, waiter.kernel)
    why = f"reading {describe_file(waiter.file)} while holding the GIL"
    return ThreadWait("waiting-io", why, gil) if gil is not None else None


def _make_in_file(waiter: Waiter) -> InFile:
    file = waiter.file
    # A FIFO can still be opened by another process.
    stopped = file is not None and file.kind == "pipe" and not is_fifo(file) and are_stopped(waiter.other_holders(file))
    ends: Ends = "never" if stopped or _is_abandoned(waiter) else "by-itself" if _is_read(waiter) else "unknown"
    return InFile(wchan=waiter.wchan, file=waiter.file, ends=ends)


def _is_read(waiter: Waiter) -> bool:
    """Whether another process reads what a thread writes: that wakes it. An observer wakes all threads of the process alike."""
    if waiter.kernel is None or waiter.call not in system_calls.WRITE:
        return False
    threads = observed.threads(waiter.process)
    others = [thread.voluntary_switches or 0 for thread in threads if thread is not waiter.kernel]
    by_observers = min(others) + 1 if others else _WAKES_BY_OBSERVERS
    return (waiter.kernel.voluntary_switches or 0) > by_observers


def _opens_fifo(waiter: Waiter) -> bool:
    """Whether a thread opens a FIFO of which no process has opened the other end. Any process may still do so."""
    return "wait_for_partner" in waiter.wchan


def _is_abandoned(waiter: Waiter) -> bool:
    """Whether only the process itself holds the other end of a pipe and its other threads are idle."""
    file = waiter.file
    return locks.others_are_idle(waiter.process, {waiter.tid}) and (
        file is not None
        and file.kind == "pipe"
        and not is_fifo(file)  # it can still be opened by another process
        # Without holders they could not be seen: a pipe without another end blocks nobody.
        and is_held_only_by(file, waiter.process.pid)
    )


def for_pipe(waiter: Waiter) -> ThreadWait | None:
    """Reads from an empty pipe, or another call on an open file. If its own processes hold the other end of the pipe, it waits
    for a child process."""
    file = waiter.file
    if file is None:
        return None
    if waiter.reads_pipe:
        others = waiter.other_holders(file) if file.holders is not None else None
        children = {helper.pid for helper in waiter.helpers}
        own = others is not None and bool(children) and all(holder.pid in children for holder in others)
        related = children | {waiter.process.ppid}
        outside = all(
            holder.accepts or (holder.waits_for_events and holder.pid not in related) for holder in others or ()
        )
        fifo = file.name if is_fifo(file) else None
        hold = ReadsPipe.ended_by(others, _make_in_file(waiter).ends, fifo=fifo, from_outside=bool(others) and outside)
        return ThreadWait(
            "waiting-child" if own else "waiting-io", f"reading {describe_file(file)}, which is empty", hold
        )
    if waiter.call in system_calls.READ | system_calls.WRITE and file.kind in ("file", "device", "pipe"):
        verb = "reading" if waiter.call in system_calls.READ else "writing to"
        return ThreadWait("waiting-io", f"{verb} {describe_file(file)}", _make_in_file(waiter))
    return None
