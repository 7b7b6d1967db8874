"""The files and pipes that a thread has open and waits for."""

from hangdoc.reasoning.ranks import locks
from hangdoc.snapshot import AwaitedFile, Holder, KernelThread, Process, PythonThread


def in_words(file: AwaitedFile | None) -> str:
    """`/data/x (fd 3) on nfs4 (s:/x)`, `a pipe (fd 7)`; empty for none."""
    if file is None:
        return ""
    what = "a pipe" if file.kind == "pipe" and not is_fifo(file) else "a socket" if file.kind == "socket" else file.name
    where = f" on {file.mount}" if file.mount else " on a full file system" if file.full else ""
    return what + (f" (fd {file.descriptor})" if file.descriptor is not None else "") + where


def is_fifo(file: AwaitedFile) -> bool:
    """Whether a pipe has a path."""
    return file.kind == "pipe" and file.name.startswith("/")


def at_other_end(process: Process, kernel: KernelThread | None) -> list[Holder]:
    """The other processes that hold the pipes which a thread reads or polls; none where it waits for anything else."""
    files = kernel.files if kernel is not None else ()
    held = [one for file in files for one in file.holders or () if one.pid != process.pid]
    return held if all(file.kind == "pipe" for file in files) else []


def abandoned(process: Process, thread: PythonThread, wchan: str, file: AwaitedFile | None) -> bool:
    """Whether only the process itself holds the other end of a pipe and its other threads are idle, or no process has opened that
    of a FIFO."""
    if "wait_for_partner" in wchan:
        return True
    return locks.others_are_idle(process, {thread.tid or process.pid}) and (
        file is not None
        and file.kind == "pipe"
        and not is_fifo(file)  # it can still be opened by another process
        # Without holders they could not be seen: a pipe without another end blocks nobody.
        and {one.pid for one in file.holders or ()} == {process.pid}
    )
