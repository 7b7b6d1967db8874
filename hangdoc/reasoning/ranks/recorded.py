"""What the record of a rank's calls adds to its stack: which collective it waits in, with which number and tensor."""

from collections.abc import Sequence

from hangdoc.diagnosis import Operation
from hangdoc.reasoning.evidence.records import recorded_groups
from hangdoc.reasoning.evidence.stack import Reading, name_operation, origin
from hangdoc.reasoning.model.ledger import TENSOR
from hangdoc.reasoning.model.rank import PassedTensor, Wait, form
from hangdoc.snapshot import Clocks, FlightRecorder, Frame, Process, PythonThread, Recorded, RecordedGroup
from hangdoc.torch_facts import call_names, file_names


def find_pending_call(process: Process, wait: Wait) -> Recorded | None:
    """The first incomplete collective of the group that a rank waits in, if it matches what the rank waits for."""
    groups = recorded_groups(process)
    group = wait.operation.group
    same = [g for g in groups if (g.name == group if group is not None else g.default)]
    op = form(wait.operation.op)
    names = {op, *call_names.RECORDED_AS.get(op, ())}
    for entry in same[0].pending if len(same) == 1 else ():
        if form(_read_op(entry)) in names:
            return entry
    return None


def was_in_call(process: Process, wait: Wait, *, stood: bool) -> bool:
    """Whether the record shows that a rank was in the collective in which its thread waits for the whole window: it is incomplete
    and older, and the rank has made no other since. Calls of a card return before they are complete. `stood`: the thread did not
    run. One that ran may have gone from one to the next of several calls that were made together."""
    entry, record, clocks = find_pending_call(process, wait), process.recorder, process.clocks
    if entry is None or entry.age_seconds is None or not isinstance(clocks, Clocks):
        return False
    on_card = any(group.on_card for group in recorded_groups(process))
    is_newest = any(group.issued == entry.seq and entry in group.pending for group in recorded_groups(process))
    if not stood and not is_newest:
        return False
    made_none = isinstance(record, FlightRecorder) and record.entries_in_window == 0
    return made_none and not on_card and entry.age_seconds > clocks.window_seconds


def find_only_pending(process: Process) -> tuple[str, str | None] | None:
    """(operation, group or None for the default one) of all incomplete collectives, if they are the same."""
    pending = {
        (_read_op(entry), None if group.default else group.name)
        for group in recorded_groups(process)
        for entry in group.pending
    }
    return pending.pop() if len(pending) == 1 else None


def find_passing(process: Process) -> Wait | None:
    """The oldest call of a rank that is not complete, else the last one that is, in the group of its newest call: another thread
    may wait in one of its own. None without such a call. Calls of a card return before they are complete, so a rank that makes
    them may be anywhere."""
    groups = recorded_groups(process)
    listed = ((group, call) for group in groups for call in (group.completed, *group.pending) if call is not None)
    aged = [(call.age_seconds, group) for group, call in listed if call.age_seconds is not None]
    if not aged or any(group.on_card for group in groups):
        return None
    _, group = min(aged, key=lambda each: each[0])
    entry = group.pending[0] if group.pending else group.completed
    if entry is None:
        return None
    op = name_operation(entry.frames) or _read_op(entry)
    name = None if group.default else group.name
    operation = Operation(op=op, origin=origin(entry.frames), group=name, seq=entry.seq)
    return Wait(call_names.wait_kind(op), operation, group.ranks or None)


def find_call_made_here(process: Process, thread: PythonThread) -> tuple[str, RecordedGroup] | None:
    """The collective that is incomplete, and that the very lines of a thread made in C++: no Python line follows it there."""
    here = _lines_to_user(thread.frames)
    for group in recorded_groups(process):
        for entry in group.pending:
            if here and _lines_to_user(entry.frames) == here:
                return _read_op(entry), group
    return None


def _lines_to_user(frames: Sequence[Frame]) -> list[tuple[str, str, int]]:
    """The lines of a stack, innermost first, down to the first one of the user's code; empty if there is none."""
    lines: list[tuple[str, str, int]] = []
    for frame in frames:
        if frame.native:
            continue
        lines.append((frame.file, file_names.bare_name(frame.function), frame.line))
        if not frame.library:
            return lines
    return []


def _read_op(entry: Recorded) -> str:
    name = entry.op.lstrip("_")
    return call_names.ALIASES.get(name, call_names.ALIASES.get(entry.op, name))


def find_tensor(process: Process, frames: tuple[Frame, ...], read: Reading, wait: Wait | None) -> PassedTensor | None:
    """The tensor of a rank, by the frames of its thread; None if it could not be read, or may differ between ranks."""
    if wait is None or wait.kind != "collective":
        return None
    entry = find_pending_call(process, wait)
    tensor = _find_tensor_in_frames(frames, read) or _find_tensor_in_record(entry, wait)
    lines = tuple(frames[at].line for at in read.c10d[1:])
    return None if tensor is None else PassedTensor(lines, tensor, None if entry is None else entry.seq)


def _find_tensor_in_frames(frames: tuple[Frame, ...], read: Reading) -> str | None:
    for at, op in read.arguments:
        for local in frames[at].locals if op in call_names.TENSOR_ARGUMENTS else ():
            if local.name in call_names.TENSOR_ARGUMENTS[op] and TENSOR.match(local.text):
                return local.text
    return None


def _find_tensor_in_record(entry: Recorded | None, wait: Wait) -> str | None:
    if entry is None or wait.operation.op not in call_names.TENSOR_ARGUMENTS or len(entry.inputs) != 1:
        return None
    return entry.inputs[0] if TENSOR.match(entry.inputs[0]) else None
