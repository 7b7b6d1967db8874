"""Locks inside one process: which threads wait for one, and whether a thread keeps the GIL to itself."""

from hangdoc.diagnose import progress
from hangdoc.diagnose.progress import user_frames
from hangdoc.snapshot import Clocks, Frame, KernelThread, Process, PythonThread, Stack

_FUTEX = 202
_WAITS_FOR_GIL = 50
"""Wake-ups a second of a thread that asks for the GIL: it does so every 5 ms (sys.getswitchinterval)."""
_IDLE = 0.02


def gil_holder(process: Process, thread: PythonThread, kernel: KernelThread | None) -> PythonThread | None:
    """Another thread that held the GIL at both looks, at the same line, without letting `thread` run; None for none.

    A thread that stands still in C with the GIL in its hands blocks all others. One that computes with it gives it
    back, unless the others keep asking in vain.
    """
    if not isinstance(process.stack, Stack) or not isinstance(process.stack_before, Stack):
        return None
    before = {t.tid: t for t in process.stack_before.threads if t.owns_gil}
    for other in process.stack.threads:
        if not other.owns_gil or other.tid == thread.tid or other.tid is None or not other.frames:
            continue
        earlier = before.get(other.tid)
        if earlier is None or not progress.same_frames(earlier, other):
            continue
        window = process.clocks.window_seconds if isinstance(process.clocks, Clocks) else 0.0
        mine = _of(process, other.tid)
        stands = mine is not None and window > 0 and mine.cpu_ns / 1e9 / window < _IDLE
        asks = kernel is not None and (kernel.voluntary_switches or 0) > _WAITS_FOR_GIL * max(window, 0.1)
        if stands or asks:
            return other
    return None


def keeps_gil(process: Process, thread: PythonThread | None) -> bool:
    """Whether `thread` itself stands still with the GIL in its hands: it is in a C call that does not release it."""
    if thread is None or not thread.owns_gil or not isinstance(process.stack_before, Stack):
        return False
    return any(
        t.tid == thread.tid and t.owns_gil and progress.same_frames(t, thread) for t in process.stack_before.threads
    )


def waiting_threads(process: Process) -> list[tuple[PythonThread, Frame]]:
    """Threads that stand at a `with lock:` or an `.acquire(` of the user's code, in the kernel's futex, at both looks."""
    if not isinstance(process.stack, Stack) or not isinstance(process.stack_before, Stack):
        return []
    before = {t.tid: t for t in process.stack_before.threads}
    found = []
    for thread in process.stack.threads:
        own = user_frames(thread)
        earlier = before.get(thread.tid)
        if not own or earlier is None or not progress.same_frames(earlier, thread) or not _takes_a_lock(thread, own[0]):
            continue
        kernel = _of(process, thread.tid if thread.tid is not None else process.pid)
        if kernel is None or kernel.syscall in (_FUTEX, None):
            found.append((thread, own[0]))
    return found


def _takes_a_lock(thread: PythonThread, frame: Frame) -> bool:
    innermost = next((f for f in thread.frames if not f.native), None)
    if innermost is not None and "importlib._bootstrap" in innermost.file and "acquire" in innermost.function:
        return True
    source = frame.source or ""
    inside = innermost is frame or (innermost is not None and innermost.file.endswith("/threading.py"))
    return inside and (source.startswith(("with ", "async with ")) or ".acquire(" in source)


def _of(process: Process, tid: int | None) -> KernelThread | None:
    if not isinstance(process.clocks, Clocks):
        return None
    return next((t for t in process.clocks.threads if t.tid == tid), None)
