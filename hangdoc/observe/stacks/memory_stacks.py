"""The stacks of a process that py-spy could not read, from its memory: without C++ frames, names of threads and the GIL.

py-spy may be missing, may not start on a file system that is mounted noexec, or may not know the Python of the rank. Memory is
read without a pause, so a stack is only valid if its thread has not run since.
"""

import contextlib
import time
from collections.abc import Iterator

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel.clocks import threads_of
from hangdoc.observe.memory.frames import Frames, MemoryFrame, ThreadState
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.python_state import variable
from hangdoc.procfs import ProcError, find_number_here, threads_from_inside
from hangdoc.program import is_library
from hangdoc.snapshot import Frame, Local, PythonThread, Stack, Unavailable

_TRIES = 3
_WOKEN_SECONDS = 0.005
"""An observer, or py-spy that has failed just now, may have made threads run for a moment."""
_MAX_LOCALS = 60
"""Of a frame."""
_MAX_FRAMES = 2000
"""Of a process. Further threads are left out."""
_MAX_NAME, _MAX_FILE, _MAX_TEXT = 200, 1000, 200


def read(observation: Observation, target: Target) -> Stack | None:
    """The threads of a process that did not run while they were read; None if its main thread ran, or can't be read."""
    if not target.python:
        return None
    best: Stack | None = None
    with contextlib.suppress(Unreadable, ProcError):
        for _ in range(_TRIES):
            stack, whole = _read_once(observation, target.pid)
            best = stack or best
            if stack is not None and whole:
                break
            time.sleep(_WOKEN_SECONDS)
    return best


def _read_once(observation: Observation, pid: int) -> tuple[Stack | None, bool]:
    """(the threads that did not run, or None; whether these are all)."""
    before = threads_of(observation.proc, pid)
    if isinstance(before, Unavailable):
        return None, False
    found: list[PythonThread] = []
    with observation.memory(pid) as memory:
        frames = Frames(memory, observation.image(pid))
        here = threads_from_inside(observation.proc, pid)
        for state in frames.threads():
            if sum(len(thread.frames) for thread in found) < _MAX_FRAMES:
                found.append(_read_thread(memory, frames, state, here))
    after = threads_of(observation.proc, pid, before)
    same = {tid for tid, reading in before.items() if isinstance(after, dict) and after.get(tid) is reading}
    at_rest = {tid for tid in same if _waits(observation, pid, tid)}
    threads = tuple(thread for thread in found if thread.tid is None or thread.tid in at_rest)
    stack = Stack(at_seconds=observation.deadline.elapsed(), threads=threads) if pid in at_rest else None
    return stack, len(threads) == len(found)


def _waits(observation: Observation, pid: int, tid: int) -> bool:
    """Whether a thread waits. On a busy host, one that computes may not run for a while either."""
    with contextlib.suppress(ProcError):
        return observation.proc.stat(f"{pid}/task/{tid}").state != "R"
    return False


def _read_thread(memory: Memory, frames: Frames, state: ThreadState, here: dict[int, int]) -> PythonThread:
    """A thread. `here`: as of `threads_from_inside`."""
    stack = tuple(_make_frame(memory, frames.qualified_name(frame), frame) for frame in frames.stack(state))
    return PythonThread(tid=find_number_here(here, state.tid), name=None, active=False, owns_gil=False, frames=stack)


def _make_frame(memory: Memory, function: str, frame: MemoryFrame) -> Frame:
    locals_ = tuple(_read_locals(memory, frame))
    return Frame(
        function=function[:_MAX_NAME],
        file=frame.file[:_MAX_FILE],
        line=frame.line or 0,
        library=is_library(frame.file),
        locals=locals_,
    )


def _read_locals(memory: Memory, frame: MemoryFrame) -> Iterator[Local]:
    for name, address in list(frame.variables.items())[:_MAX_LOCALS]:
        with contextlib.suppress(Unreadable):
            value = variable(memory, name, address)
            text = value.text if value is not None else f"<{memory.kind(address)[0]}>"
            yield Local(
                name=name[:_MAX_NAME],
                text=text[:_MAX_TEXT],
                address=address,
                length=value.length if value is not None else None,
            )
