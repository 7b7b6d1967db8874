"""Waits of a thread for a child process of its own."""

from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.model.holds import ChildStopped
from hangdoc.reasoning.ranks.movement import thread_of
from hangdoc.reasoning.ranks.open_files import at_other_end
from hangdoc.snapshot import Holder, KernelThread, Process, PythonThread
from hangdoc.torch_facts import file_names

_OUTPUTS: dict[int | None, str] = {1: "standard output", 2: "standard error"}
_CHILD_WAITS = {
    "/subprocess.py": ("wait", "_wait", "communicate", "_communicate"),
    "/multiprocessing/popen_fork.py": ("wait", "poll"),
    "/multiprocessing/process.py": ("join",),
    "/multiprocessing/pool.py": ("get", "wait", "next", "join"),
}
"""Functions of Python that wait for child processes."""
_FUTURES, _PROCESS_POOL = "/concurrent/futures/_base.py", "/concurrent/futures/process.py"


def on_child(process: Process, kernel: KernelThread | None, helpers: Sequence[Process]) -> Holder | None:
    """The child process at the other end of the pipes that a thread polls; None where it polls anything else."""
    held = at_other_end(process, kernel)
    children = {helper.pid for helper in helpers}
    return held[0] if held and all(one.pid in children for one in held) else None


def stopped_child(process: Process, thread: PythonThread, helpers: Sequence[Process]) -> ChildStopped | None:
    """The child process that is stopped, if a thread is in a function of Python that waits for child processes."""
    stops = ((helper, stopped_by(helper)) for helper in helpers)
    found = next(((helper, stop) for helper, stop in stops if stop is not None), None)
    if found is None or not _waits_for_children(process, thread):
        return None
    return ChildStopped(pid=found[0].pid, name=found[0].name, how=found[1].why)


def _waits_for_children(process: Process, thread: PythonThread) -> bool:
    """A future is the result of a child process if a thread of this process manages a pool of them."""
    for frame in thread.frames:
        name = file_names.bare_name(frame.function)
        if any(name in names and frame.file.endswith(file) for file, names in _CHILD_WAITS.items()):
            return True
        if frame.file.endswith(_FUTURES):
            others = (other for one in known.python_threads(process) for other in one.frames)
            return any(other.file.endswith(_PROCESS_POOL) for other in others)
    return False


class Writing(NamedTuple):
    """A child process that cannot write, and what it writes to: `standard output`."""

    process: Process
    what: str


def blocked_child(process: Process, kernel: KernelThread | None, helpers: Sequence[Process]) -> Writing | None:
    """The child process that the only Python thread of a process waits for, by its end or by what it writes, and that itself
    writes to another pipe, which is full and which only that thread could read."""
    if kernel is None or len(known.python_threads(process)) > 1:
        return None
    awaited = {one.pid for one in at_other_end(process, kernel)}
    read = {file.name for file in kernel.files}
    for helper in helpers:
        theirs = thread_of(helper, helper.pid)
        file = theirs.files[0] if theirs is not None and theirs.files else None
        if theirs is None or file is None or theirs.syscall not in system_calls.WRITE or file.kind != "pipe":
            continue
        waits = kernel.syscall in system_calls.CHILD or awaited == {helper.pid}
        if waits and file.name not in read and {one.pid for one in file.holders or ()} == {process.pid}:
            return Writing(helper, _OUTPUTS.get(file.descriptor, "output"))
    return None
