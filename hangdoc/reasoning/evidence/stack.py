"""What the stack of a process shows, whatever its variables hold: the operation that it is in, where in the user's code, and
whether it is in a rendezvous.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from operator import attrgetter
from signal import Signals
from typing import NamedTuple

from msgspec import Struct

from hangdoc import program
from hangdoc.diagnosis import Where
from hangdoc.parse import names_in, natural
from hangdoc.program import is_entry
from hangdoc.reasoning.evidence import observed
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Process, PythonThread, Stack
from hangdoc.torch_facts import call_names, cpp_names, file_names, frameworks, thread_names

_SIGNALS = range(1, 65)
_HANDLER_ARGUMENTS = regex(r"\((\d{1,2}), <frame at 0x")
_AT_END = "_shutdown"
"""The function of threading.py in which the main thread waits for the others, in Python 3.9 to 3.13. A process of multiprocessing
calls it as well, and has the frames of its start outside of it."""
Lines = tuple[tuple[str, str, int, bool, bool], ...]
"""File, function and line of each frame, and whether it is a library's and native."""
_LINE = attrgetter("file", "function", "line", "library", "native")


class Reading(Struct, frozen=True, gc=False):
    """What the lines of a stack say. Many ranks are at the same lines: each such stack is read once. Frames are given
    as positions in the stack, innermost first."""

    lines: Lines
    own: tuple[int, ...]
    """The user's own code."""
    program: tuple[int, ...]
    """See `hangdoc.program`."""
    in_torch: bool
    """Whether a frame is torch's."""
    in_c10d: bool
    """Whether it is in an operation of torch.distributed."""
    joins: bool
    """Whether it waits for a thread to end."""
    is_over: bool
    """Whether the program has ended in this thread, and Python waits for the threads that are no daemons."""
    call: int | None
    """The operation that the user, or torch for the user, called."""
    calls_itself: bool
    """Whether a line of the user's own code calls that operation, and no library does it for the user."""
    origin: str
    """Who called it: the part of torch nearest to the call, else the user."""
    rendezvous: int | None
    """The outermost function of a rendezvous."""
    in_rendezvous: bool
    """Whether that is what it waits in: a new group has a rendezvous of its own inside a collective."""
    c10d: tuple[int, ...]
    """All frames of the file with the operations."""
    arguments: tuple[tuple[int, str], ...]
    """Operations of the user's innermost call, which may tell what tensors they were given."""
    rpc: int | None
    """The outermost call of torch.distributed.rpc that waits for another rank."""
    meeting: frameworks.Meeting | None
    """What it waits in, if all ranks of the run meet there outside of its process groups."""
    handles_rpc: bool
    """Whether the thread does what another rank has requested by RPC."""
    trains: bool
    """Whether a framework started the thread for the user's training function."""
    in_request: bool
    """Whether a worker of a framework executes a request in it."""
    in_backward: bool
    """Whether autograd's engine is called at its inner end."""
    waits_for_tensor: bool
    """Whether it waits for the result of a functional collective there."""
    scripts: bool
    """Whether a frame of `own` may be a script that pip wrote."""


def lines_of(thread: PythonThread) -> Lines:
    """Equal for stacks at the same lines."""
    return tuple(map(_LINE, thread.frames))


def reading(thread: PythonThread) -> Reading:
    """What the lines of a thread say."""
    return _read(tuple(map(_LINE, thread.frames)))


def frames_at(frames: Sequence[Frame], positions: tuple[int, ...]) -> tuple[Frame, ...]:
    """Some frames of a stack."""
    return tuple([frames[at] for at in positions])


@lru_cache(512)  # a reading takes up to 10 kB, and ranks that import modules have ever new ones
def _read(lines: Lines) -> Reading:
    frames = [
        Frame(file=file, function=function, line=line, library=library, native=native)
        for file, function, line, library, native in lines
    ]
    call, rendezvous = _operation(frames)
    own = tuple(at for at, frame in enumerate(frames) if not frame.library and not frame.native)
    first_own = own[0] if own else len(frames)
    c10d = tuple(at for at, frame in enumerate(frames) if frame.file.endswith(file_names.C10D))
    return Reading(
        lines=lines,
        own=own,
        program=program.positions(frames),
        in_torch=any(file_names.TORCH in frame.file for frame in frames),
        in_c10d=any(file_names.role_in_distributed(frame.file, frame.function) == "operation" for frame in frames),
        joins=any(
            file_names.bare_name(f.function) == "join" and f.file.endswith("/threading.py") for f in frames[:first_own]
        ),
        is_over=any(f.function == _AT_END and f.file.endswith("/threading.py") for f in frames[:first_own]),
        call=call,
        calls_itself=call is not None
        and all(frame.file.endswith(file_names.C10D_LOGGER) for frame in frames[call + 1 : first_own])
        and bool(own),
        origin=origin(frames[call:]) if call is not None else "user",
        rendezvous=rendezvous,
        in_rendezvous=rendezvous is not None
        and (call is None or file_names.bare_name(frames[call].function) != "new_group"),
        c10d=c10d,
        arguments=tuple((at, file_names.bare_name(frames[at].function)) for at in c10d if at <= first_own),
        rpc=_rpc(frames[:first_own]),
        meeting=_meeting(frames[:first_own]),
        handles_rpc=_is_in(frames, file_names.RPC_HANDLER),
        trains=_is_in(frames, *frameworks.TRAINING_THREADS),
        in_request=_is_in(frames[first_own:], *frameworks.REQUEST_LOOPS),
        in_backward=_is_in(frames[:3], file_names.BACKWARD),
        waits_for_tensor=_is_in(frames[:3], file_names.WAIT_TENSOR),
        scripts=any(program.is_script(frames[at].file) for at in own),
    )


def _is_in(frames: Sequence[Frame], *functions: file_names.Function) -> bool:
    return any(function.is_at(frame.file, frame.function) for frame in frames for function in functions)


def _rpc(frames: Sequence[Frame]) -> int | None:
    """The outermost wait in calls of torch.distributed.rpc."""
    waits = {*call_names.RPC_CALLS, *call_names.RPC_MEETINGS}
    positions = [at for at, f in enumerate(frames) if f.file.endswith(file_names.RPC) and f.function in waits]
    return max(positions, default=None)


def _meeting(frames: Sequence[Frame]) -> frameworks.Meeting | None:
    meetings = ((frame, meeting) for frame in frames for meeting in frameworks.MEETINGS)
    return next((meeting for frame, meeting in meetings if meeting.function.is_at(frame.file, frame.function)), None)


def name_operation(frames: Sequence[Frame]) -> str | None:
    """The operation of torch.distributed that the user, or torch for the user, called; None where no frame shows it."""
    call, _ = _operation(frames)
    return file_names.bare_name(frames[call].function) if call is not None else None


def _operation(frames: Sequence[Frame]) -> tuple[int | None, int | None]:
    """(operation, rendezvous) of a stack, down to the first frame of the user's own code."""
    call: int | None = None
    rendezvous: int | None = None
    for at, frame in enumerate(frames):
        role = file_names.role_in_distributed(frame.file, frame.function)
        if role == "rendezvous":
            rendezvous = at
        elif role == "operation":
            # all_gather_object calls all_gather: the outer one is what the user called. But a barrier inside
            # init_process_group is still the rendezvous.
            call = at
        elif not frame.library:
            break
    return call, rendezvous


def origin(frames: Sequence[Frame]) -> str:
    """Who called: the part of torch nearest to the innermost frame, else the user."""
    origins = (file_names.origin_of_call(frame.file, frame.function) for frame in frames)
    return next((origin for origin in origins if origin is not None), "user")


# --- where a rank is --------------------------------------------------------------------------------------------------


class Handling(NamedTuple):
    """The handler of a signal in which a thread is."""

    number: int
    """Of the signal."""
    handler: Frame
    """The innermost frame of the handler."""
    interrupted: Frame
    """Where the signal came."""

    @property
    def signal(self) -> str:
        return Signals(self.number).name if self.number in set(Signals) else f"signal {self.number}"

    def __str__(self) -> str:
        at = f"{short(self.handler.file)}:{self.handler.line}"
        return f"{self.handler.function} ({at}) handles {self.signal}, which interrupted {self.interrupted.function}"


def find_handler(thread: PythonThread) -> Handling | None:
    """The handler of a signal in which a thread is. Python calls a handler with the number of the signal and the frame that was
    interrupted (signal.signal), and no line of the program does."""
    handling = [
        (at, signal) for at, frame in enumerate(thread.frames) if (signal := _handled_signal(frame)) is not None
    ]
    if not handling:
        return None
    outermost = handling[-1][0]
    handler, interrupted = thread.frames[outermost], next(iter(thread.frames[outermost + 1 :]), None)
    name = file_names.bare_name(handler.function)
    if (
        interrupted is None
        or interrupted.source is None
        or name in map(file_names.bare_name, names_in(interrupted.source))
    ):
        return None
    innermost_at, signal = handling[0]
    return Handling(signal, thread.frames[innermost_at], interrupted)


def _handled_signal(frame: Frame) -> int | None:
    """The number of a signal, if the first two arguments of a frame, behind the object of a method, are one and a frame; or all
    that its `*args` has."""
    texts = [local.text for local in frame.locals[:3]]
    if texts and (frame.locals[0].name in ("self", "cls") or texts[0].startswith("<")):
        del texts[0]
    given = (*texts[:1], f"({', '.join(texts[:2])})")
    match = next(filter(None, map(_HANDLER_ARGUMENTS.match, given)), None)
    number = natural(match[1]) if match is not None else None
    return number if number in _SIGNALS else None


def user_frames(thread: PythonThread | None) -> tuple[Frame, ...]:
    """Frames of the user's own code, innermost first."""
    return () if thread is None else tuple([f for f in thread.frames if not f.library and not f.native])


def innermost_user_frame(thread: PythonThread) -> Frame | None:
    """The innermost frame of the user's own code."""
    return next(iter(user_frames(thread)), None)


def innermost(thread: PythonThread) -> Frame | None:
    """The innermost Python frame."""
    return next((frame for frame in thread.frames if not frame.native), None)


def where(thread: PythonThread | None, read: Reading | None, own: Sequence[Frame]) -> tuple[Where | None, Frame | None]:
    """The innermost frame of the user's `own` code; where there is none, the innermost Python frame outside torch."""
    if thread is None or read is None:
        return None, None
    shown = [f for f in own if not is_entry(f)] if read.scripts else own
    own = shown or [
        f for f in thread.frames if not f.native and file_names.TORCH not in f.file and "site-packages" in f.file
    ]
    if not own:
        return None, None
    frame = own[0]
    return _shown(frame.file, frame.line, frame.function, frame.source), frame


@lru_cache(1024)
def _shown(file: str, line: int, function: str, source: str | None) -> Where:
    return Where(file=short(file), line=line, function=function, source=source)


def short(file: str) -> str:
    """The name of a file with one directory: short, but recognisable."""
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 and parts[-2] not in ("", "tmp") else parts[-1]


def name_line(line: int, frame: Frame | None, beside: Frame | None) -> str:
    """A line of a frame's file as text: `line 7`, or `transformers/trainer.py:7` beside the place of a frame in another file."""
    if frame is None or beside is None or frame.file == beside.file:
        return f"line {line}"
    return f"{short(frame.file)}:{line}"


# --- the rendezvous ---------------------------------------------------------------------------------------------------


def has_met(process: Process) -> bool:
    """Whether a rank has completed its rendezvous, so that all other ranks have been there too."""
    if observed.groups(process):
        return True
    return thread_names.GLOO_LOOP in observed.thread_names(process) and not in_rendezvous(process)


def in_rendezvous(process: Process) -> bool:
    """Whether a thread of a process is in a rendezvous, by its Python frames or by its native ones."""
    if any(reading(thread).in_rendezvous for thread in observed.python_threads(process)):
        return True
    native = process.native.threads if isinstance(process.native, Stack) else ()
    return any(cpp_names.CONNECT.search(inner_native_functions(thread)) for thread in native)


def inner_native_functions(thread: PythonThread) -> str:
    """The native functions that the innermost Python frame of a thread called, one on each line: older calls are not its wait."""
    return "\n".join(frame.function for frame in takewhile(lambda frame: frame.native, thread.frames))


# --- what a rank passed to it -----------------------------------------------------------------------------------------


class MeetingCall(Struct, frozen=True, gc=False):
    """A call of `init_process_group` or `init_rpc`, in which the ranks of a run meet. It can be read while the call lasts."""

    function: str
    world_size: int | None = None
    """None where the call does not say: then WORLD_SIZE does."""
    init_method: str | None = None
    """A URL that is not `env://`."""


def meeting_call_of(process: Process) -> MeetingCall | None:
    """The call that a process is in; None outside of one."""
    for frame in observed.frames(process):
        for function in file_names.MEETINGS:
            if function.is_at(frame.file, frame.function):
                values = {local.name: local.text.strip("\"'") for local in frame.locals}
                method = values.get("init_method", "")
                return MeetingCall(
                    function.name,
                    natural(values.get("world_size")),
                    method if re.match(r"(?!env:)\w+://", method) else None,
                )
    return None
