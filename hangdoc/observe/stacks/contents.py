"""What the variables of a stack refer to: lengths of containers, shapes of tensors, and the numbers in objects.

py-spy's texts are short, so this is read from memory, some milliseconds after the pause. A process that runs may have freed
an object by then, and another one may be in its place: more than half of the tensors of a rank that computes are other ones. So
the frames are read again, after the objects. What an object contains is kept if its variable still refers to it. A new object is
often where an old one was, so a shape or a length, which belong to short-lived objects too, is kept only of a frame that has not
moved.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from hangdoc.observe.access.observation import Observation
from hangdoc.observe.memory.frames import TAGS, Frames, MemoryFrame, ThreadState
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.python_state import Variable, amounts, p2p_ops, torch_value
from hangdoc.observe.torch.precision import precisions
from hangdoc.observe.torch.rpc_worker import worker_info
from hangdoc.procfs import ProcError, ProcFS, find_number_here, threads_from_inside
from hangdoc.program import program
from hangdoc.snapshot import Frame, Local, PythonThread, Stack
from hangdoc.torch_facts import call_names, file_names

_MAX_CONTENTS = 60
"""Of a frame."""
_MOST_FRAMES = 1_000
"""Of a thread, as many as CPython allows by default. Of a deeper one nothing is kept."""


class _Content(NamedTuple):
    """What was read of a variable."""

    before: Local
    """As the stack shows it."""
    shown: Local
    inside: tuple[Local, ...]
    """Numbers and types in its object."""


class _Place(NamedTuple):
    """A frame of the stack, as it is after the objects were read."""

    frame: MemoryFrame
    moved: bool


def with_contents(observation: Observation, pid: int, stack: Stack, rests: Callable[[], bool]) -> Stack:
    """The stack with lengths of containers, with the shapes of tensors, and with numbers and lengths in the objects of the user's
    frames (`loader.dataset.paths`). `rests` says whether the process has not run since the stack was read. It is asked only for a
    Python whose frames are not known."""
    try:
        with observation.memory(pid) as memory:
            read = [list(_read_frames(memory, thread.frames)) for thread in stack.threads]
            try:
                present = _Present(memory, Frames(memory, observation.image(pid)), observation.proc, pid)
            except Unreadable:
                keep = _keep_all if rests() else _keep_nothing
            else:
                keep = present.keep
            threads = [
                msgspec.structs.replace(thread, frames=keep(thread, contents)) if any(contents) else thread
                for thread, contents in zip(stack.threads, read, strict=True)
            ]
            return msgspec.structs.replace(stack, threads=tuple(threads))
    except (Unreadable, ProcError):
        return stack


def _keep_all(thread: PythonThread, read: list[list[_Content]]) -> tuple[Frame, ...]:
    return tuple(_show(frame, contents, moved=False) for frame, contents in zip(thread.frames, read, strict=True))


def _keep_nothing(thread: PythonThread, read: list[list[_Content]]) -> tuple[Frame, ...]:
    return thread.frames


def _show(frame: Frame, contents: list[_Content], *, moved: bool) -> Frame:
    """The frame with what was read of its variables. `moved`: without what only a frame at the same place shows."""
    shown = {} if moved else {content.before.name: content.shown for content in contents}
    inside = (local for content in contents for local in content.inside)
    return msgspec.structs.replace(frame, locals=(*(shown.get(local.name, local) for local in frame.locals), *inside))


class _Present:
    """The frames of a process now. Raises ProcError."""

    def __init__(self, memory: Memory, frames: Frames, proc: ProcFS, pid: int) -> None:
        self._memory, self._frames = memory, frames
        here = threads_from_inside(proc, pid)
        self._threads = [(find_number_here(here, state.tid), state) for state in frames.threads()]

    def keep(self, thread: PythonThread, read: list[list[_Content]]) -> tuple[Frame, ...]:
        """The frames of a thread with what was read of their variables, if these still refer to the same objects. Where the
        number of a thread is not known, the one with most of these frames at the same place is taken."""
        states = [state for tid, state in self._threads if thread.tid is None or tid in (thread.tid, None)]
        candidates = [self._find_places(state, thread.frames) for state in states]
        places = max(candidates, key=lambda places: [place.moved for place in places.values()].count(False), default={})
        frames = list(thread.frames)
        for number, place in places.items():
            kept = [content for content in read[number] if self._refers(place.frame, content.before)]
            frames[number] = _show(frames[number], kept, moved=place.moved)
        return tuple(frames)

    def _find_places(self, state: ThreadState, stack: tuple[Frame, ...]) -> dict[int, _Place]:
        """The frames of the stack that are still there, by their numbers in it: those that the same functions have called. One
        has not moved if it is at the same line with the same variables, and so are those that have called it."""
        places: dict[int, _Place] = {}
        moved = False
        with contextlib.suppress(Unreadable):
            present = list(self._frames.stack(state, _MOST_FRAMES))
            for number in range(1, min(len(stack), len(present)) + 1):
                frame, now = stack[-number], present[-number]
                if (now.file, self._frames.qualified_name(now)) != (frame.file, frame.function):
                    break
                same = all(self._refers(now, local) for local in frame.locals if local.address is not None)
                moved = moved or now.line != frame.line or not same
                places[len(stack) - number] = _Place(now, moved)
        return places

    def _refers(self, frame: MemoryFrame, local: Local) -> bool:
        """Whether a variable refers to the object that it had in the stack, or to the cell that it has if a closure uses it."""
        present, address = frame.variables.get(local.name), (local.address or 0) & ~TAGS
        if present is None or present == address or not address:
            return present == address
        with contextlib.suppress(Unreadable):
            return self._memory.kind(address)[0] == "cell" and self._memory.word(address + 16) == present
        return False


_Read = Callable[[Memory, Local, int], tuple[Local, Iterable[Variable]]]
"""Reads a variable, which is at an address: what is shown of it, and what it contains. Raises Unreadable."""


def _read_frames(memory: Memory, frames: tuple[Frame, ...]) -> Iterator[list[_Content]]:
    """What the variables of each frame refer to."""
    program_frames = {id(frame) for frame in program(frames)}
    for frame in frames:
        if not frame.library or frame.file.endswith(file_names.WITH_ARGUMENTS):
            yield _read_frame(memory, frame, _read_contents)
        elif frame.file.endswith(file_names.PIPELINE):
            yield _read_frame(memory, frame, _read_container)
        elif id(frame) in program_frames:
            yield _read_frame(memory, frame, _read_length)
        else:
            yield _read_frame(memory, frame, _read_dtype) if file_names.LAYERS in frame.file else []


def _read_frame(memory: Memory, frame: Frame, read: _Read) -> list[_Content]:
    contents: list[_Content] = []
    left = _MAX_CONTENTS
    for local in frame.locals:
        if local.address is not None:
            with contextlib.suppress(Unreadable):
                shown, inside = read(memory, local, local.address)
                contents.append(_Content(local, shown, tuple(map(_as_local, islice(inside, left)))))
                left -= len(contents[-1].inside)
    return contents


def _read_contents(memory: Memory, local: Local, address: int) -> tuple[Local, Iterable[Variable]]:
    """Of the user's variables: the length of a container, the dtype and shape of a tensor, and the numbers and floating-point
    types in any other object."""
    if not local.text.startswith("<"):
        return _read_container(memory, local, address)
    if (text := torch_value(memory, address) or worker_info(memory, address)) is not None:
        return msgspec.structs.replace(local, text=text), ()
    return local, chain(precisions(memory, local.name, address), amounts(memory, local.name, address))


def _read_container(memory: Memory, local: Local, address: int) -> tuple[Local, Iterable[Variable]]:
    """The length of a container, and the operations in a list for batch_isend_irecv."""
    if local.text[:1] not in "[({":
        return local, ()
    is_batch = f"<{call_names.P2P_OP} at " in local.text
    return _add_length(memory, local, address), p2p_ops(memory, local.name, address) if is_batch else ()


def _read_length(memory: Memory, local: Local, address: int) -> tuple[Local, Iterable[Variable]]:
    """Of a framework's variables: the length of a container, and the numbers in `self`, where its trainer keeps the number of
    batches."""
    if local.text[:1] in "[({":
        return _add_length(memory, local, address), ()
    return local, amounts(memory, "self", address, depth=1) if local.name == "self" else ()


def _add_length(memory: Memory, local: Local, address: int) -> Local:
    return msgspec.structs.replace(local, length=memory.length(address))


def _read_dtype(memory: Memory, local: Local, address: int) -> tuple[Local, Iterable[Variable]]:
    """Of the variables of torch's layers: the dtype of a tensor."""
    text = torch_value(memory, address) if local.text.startswith("<") else None
    return local if text is None else msgspec.structs.replace(local, text=text), ()


def _as_local(variable: Variable) -> Local:
    return Local(name=variable.name, text=variable.text, length=variable.length)
