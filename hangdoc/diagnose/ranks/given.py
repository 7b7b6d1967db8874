"""The tensor that a rank passed to the collective in which it waits."""

from hangdoc.diagnose.model import Wait
from hangdoc.diagnose.ranks import recorded, torch_names
from hangdoc.regex import regex
from hangdoc.snapshot import Process, PythonThread

TENSOR = regex(r"^(\w+)\[([\d, ]*)\]$")
_ARGUMENTS = {
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
    "all_gather_into_tensor": ("input_tensor", "output_tensor"),
    "all_gather": ("tensor",),
    "reduce_scatter_tensor": ("input", "output"),
}
"""Which must have the same number of elements on all ranks."""
Given = tuple[tuple[int, ...], str]
"""The lines at which one of torch's calls makes another (broadcast_object_list sends a size first, then what it is of), and
the tensor of the innermost as `float32[64, 8]`."""


def given(process: Process, thread: PythonThread | None, wait: Wait | None) -> Given | None:
    """The tensor of a rank; None if it could not be read, or may differ between ranks."""
    if wait is None or wait.kind != "collective" or (tensor := _tensor(process, thread, wait)) is None:
        return None
    frames = thread.frames if thread is not None else ()
    lines = tuple(frame.line for frame in frames if frame.file.endswith(torch_names.C10D))
    return lines[1:], tensor


def _tensor(process: Process, thread: PythonThread | None, wait: Wait) -> str | None:
    for frame in thread.frames if thread is not None else ():
        if frame.file.endswith(torch_names.C10D) and (names := _ARGUMENTS.get(torch_names.plain(frame.function))):
            for local in frame.locals:
                if local.name in names and TENSOR.match(local.text):
                    return local.text
        if not frame.library and not frame.native:
            break  # what lies outside of the user's call is not this call
    known = recorded.tensor(process, wait) if wait.operation.op in _ARGUMENTS else None
    return known if known is not None and TENSOR.match(known) else None
