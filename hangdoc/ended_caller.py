"""The thread that made the last recorded call of a rank, if it has ended although its loop has no end.

The record has the Python frames of each call, and the stacks have those of all threads that live. Both the observation, which
reads the source of such a call, and the reasoning ask this.
"""

import ast

from hangdoc.parse import parsed_statement
from hangdoc.program import around
from hangdoc.snapshot import FlightRecorder, Frame, Recorded, Stack, Unavailable
from hangdoc.torch_facts import file_names

_THREADING = "/threading.py"
_GREENLETS = ("/gevent/", "/eventlet/", "/greenlet/")
_COROUTINES = "/asyncio/"
"""In files of libraries that switch between stacks: what rests there is on no thread's stack."""
_MOST_THREADS = 64
"""Of more, not all are read (`hangdoc.observe.memory.frames`)."""
_MOST_FRAMES = 200


def find_last_call(record: FlightRecorder | Unavailable) -> Recorded | None:
    """The newest call of a rank, if all its calls are complete and none was made for a card; None if that is not known."""
    if isinstance(record, Unavailable) or any(group.pending or group.on_card for group in record.groups):
        return None
    calls = [group.completed for group in record.groups if group.completed is not None]
    if any(call.age_seconds is None for call in calls):
        return None
    return min(calls, key=lambda call: call.age_seconds or 0.0, default=None)


def has_ended(call: Recorded, stack: Stack | Unavailable) -> bool:
    """Whether the thread that made a call is no main thread, and no living thread is in any of its functions of the user's code.
    False if not all threads could be read."""
    if isinstance(stack, Unavailable) or not call.frames or not call.frames[-1].file.endswith(_THREADING):
        return False
    present = [frame for thread in stack.threads for frame in thread.frames]
    switched = any(part in frame.file for frame in (*present, *call.frames) for part in _GREENLETS)
    if switched or any(_COROUTINES in frame.file for frame in call.frames):
        return False
    read = all(0 < len(thread.frames) < _MOST_FRAMES for thread in stack.threads)
    own = {_identify(frame) for frame in call.frames if not frame.library}
    return read and 0 < len(stack.threads) < _MOST_THREADS and bool(own) and own.isdisjoint(map(_identify, present))


def find_left_loop(call: Recorded) -> Frame | None:
    """The frame of a call that is in a loop without an end, so that only an exception leaves it; None for none, and where the
    loop may continue later: in a generator."""
    for frame, caller in zip(call.frames, call.frames[1:], strict=False):
        endless = any(loop.header in ("while True", "while 1") and not loop.exits for loop in around(frame))
        if not frame.library and endless and _runs_to_its_end(frame, caller):
            return frame
    return None


def _identify(frame: Frame) -> tuple[str, str]:
    return frame.file, file_names.bare_name(frame.function)


def _runs_to_its_end(frame: Frame, caller: Frame) -> bool:
    """Whether a function was called by a statement that is only this call, or is that of a thread: one that yields would not
    run."""
    if caller.library:
        return caller.file.endswith(_THREADING)
    tree = parsed_statement((caller.source or "").removeprefix("try: "))
    match tree.body if tree is not None else []:
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)))]:
            return name == file_names.bare_name(frame.function)
    return False
