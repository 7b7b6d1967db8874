"""Frames in bundles. Each frame (without its locals), each stack of frames, and each set of locals is written only once, and the
threads of the first look only if they differ from those of the second.

The ranks of a run are at a few lines of one program, and only the locals of some frames differ. Bundles without this table
(schema `hangdoc.snapshot/2`) contain whole frames in every thread.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr, replace

from hangdoc import untrusted
from hangdoc.snapshot import Frame, Host, Local, Process, PythonThread, Snapshot, Stack


class Table(msgspec.Struct, frozen=True, gc=False):
    """All frames of a bundle, without their locals, and all stacks of its threads, as positions in `frames`."""

    frames: tuple[Frame, ...]
    stacks: tuple[tuple[int, ...], ...]


Resolved = tuple[tuple[Frame, ...], ...]
"""The stacks of a table."""


Locals = tuple[Local, ...]


def share(snapshot: Snapshot) -> tuple[Snapshot, Table, tuple[Locals, ...]]:
    """The snapshot without frames, and the table and the locals that its threads refer to."""
    bare = {
        thread.frames: tuple(without_locals(frame) for frame in thread.frames) for thread in _list_threads(snapshot)
    }
    stacks = sorted(set(bare.values()), key=lambda stack: [_encode_frame(frame) for frame in stack])
    # Sorted by frames, so that hosts whose ranks are at the same lines have equal tables.
    frames = sorted({frame for stack in stacks for frame in stack}, key=_encode_frame)
    at = {frame: number for number, frame in enumerate(frames)}
    number = {stack: position for position, stack in enumerate(stacks)}
    variables: dict[Locals, int] = {}

    def shared(thread: PythonThread) -> PythonThread:
        if not thread.frames:
            return thread
        own = tuple(
            variables.setdefault(frame.locals, len(variables)) if frame.locals else -1 for frame in thread.frames
        )
        return replace(thread, frames=(), stack=number[bare[thread.frames]], locals=own if max(own) >= 0 else ())

    table = Table(tuple(frames), tuple(tuple(at[frame] for frame in stack) for stack in stacks))
    return (
        replace(snapshot, hosts=tuple(_change_threads(host, shared) for host in snapshot.hosts)),
        table,
        tuple(variables),
    )


def resolve(hosts: tuple[Host, ...], table: Resolved, variables: tuple[Locals, ...], most: int) -> None:
    """Give the threads of newly decoded hosts their frames. Raises IndexError for a position that does not exist, and
    ValueError for locals of another stack, or for more than `most` frames: a few bytes refer to a long stack."""
    frame_count = 0
    for host in hosts:
        for process in host.processes:
            for stack in (process.stack, process.stack_before, process.native):
                if not isinstance(stack, Stack):
                    continue
                if stack.as_later:
                    if isinstance(process.stack, Stack):  # resolved before this one
                        force_setattr(stack, "threads", process.stack.threads)
                    force_setattr(stack, "as_later", False)
                    continue
                for thread in stack.threads:
                    if thread.stack is not None:
                        frames = table[thread.stack]
                        frame_count += len(frames)
                        if frame_count > most:
                            raise ValueError(f"its threads have more than {most:,} frames")
                        if thread.locals:
                            pairs = zip(frames, thread.locals, strict=True)
                            frames = tuple(
                                [replace(frame, locals=variables[at]) if at >= 0 else frame for frame, at in pairs]
                            )
                            force_setattr(thread, "locals", ())
                        force_setattr(thread, "frames", frames)  # nothing else refers to it yet
                        force_setattr(thread, "stack", None)


def table_of(raw: bytes) -> Resolved:
    """The stacks of a table that was written as JSON. Raises UntrustedError, and IndexError as `resolve`."""
    return _kept_table(raw) if len(raw) <= untrusted.KEPT_BYTES else _decode_table(raw)


@lru_cache(64)  # the hosts of a run have few different tables
def _kept_table(raw: bytes) -> Resolved:
    return _decode_table(raw)


def _decode_table(raw: bytes) -> Resolved:
    table = untrusted.decode(raw, Table, len(raw))
    return tuple(tuple(table.frames[at] for at in stack) for stack in table.stacks)


def _list_threads(snapshot: Snapshot) -> Iterator[PythonThread]:
    for host in snapshot.hosts:
        for process in host.processes:
            for stack in (process.stack, process.stack_before, process.native):
                if isinstance(stack, Stack):
                    yield from (thread for thread in stack.threads if thread.frames)


def _change_threads(host: Host, change: Callable[[PythonThread], PythonThread]) -> Host:
    return replace(host, processes=tuple(_change_process(process, change) for process in host.processes))


def _change_process(process: Process, change: Callable[[PythonThread], PythonThread]) -> Process:
    stacks = {
        name: replace(stack, threads=tuple(map(change, stack.threads)))
        for name in ("stack", "stack_before", "native")
        if isinstance(stack := getattr(process, name), Stack)
    }
    if "stack" in stacks and "stack_before" in stacks and stacks["stack"].threads == stacks["stack_before"].threads:
        stacks["stack_before"] = replace(stacks["stack_before"], threads=(), as_later=True)
    return replace(process, **stacks)


def without_locals(frame: Frame) -> Frame:
    """A frame without its variables."""
    return replace(frame, locals=()) if frame.locals else frame


def _encode_frame(frame: Frame) -> bytes:
    return msgspec.json.encode(frame)
