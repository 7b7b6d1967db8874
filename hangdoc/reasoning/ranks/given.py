"""The tensor that a rank passed to the collective in which it waits."""

from hangdoc.reasoning.evidence.stack import Reading
from hangdoc.reasoning.model.rank import Given, Wait
from hangdoc.reasoning.ranks import recorded
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Process, Recorded
from hangdoc.torch_facts import call_names

TENSOR = regex(r"^(\w+)\[([\d, ]*)\]$")


def given(process: Process, frames: tuple[Frame, ...], read: Reading, wait: Wait | None) -> Given | None:
    """The tensor of a rank, by the frames of its thread; None if it could not be read, or may differ between ranks."""
    if wait is None or wait.kind != "collective":
        return None
    entry = recorded.stuck(process, wait)
    tensor = _tensor(frames, read) or _recorded_tensor(entry, wait)
    lines = tuple(frames[at].line for at in read.c10d[1:])
    return None if tensor is None else Given(lines, tensor, None if entry is None else entry.seq)


def _tensor(frames: tuple[Frame, ...], read: Reading) -> str | None:
    for at, op in read.arguments:
        for local in frames[at].locals if op in call_names.TENSOR_ARGUMENTS else ():
            if local.name in call_names.TENSOR_ARGUMENTS[op] and TENSOR.match(local.text):
                return local.text
    return None


def _recorded_tensor(entry: Recorded | None, wait: Wait) -> str | None:
    if entry is None or wait.operation.op not in call_names.TENSOR_ARGUMENTS or len(entry.inputs) != 1:
        return None
    return entry.inputs[0] if TENSOR.match(entry.inputs[0]) else None
