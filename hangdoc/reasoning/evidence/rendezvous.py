"""Whether a process is in its rendezvous, or past it."""

from itertools import takewhile

from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.evidence.reading import reading
from hangdoc.snapshot import Process, PythonThread, Stack
from hangdoc.torch_facts import cpp_names, thread_names


def has_met(process: Process) -> bool:
    """Whether a rank has completed its rendezvous, so that all other ranks have been there too."""
    if known.groups(process):
        return True
    return thread_names.GLOO_LOOP in known.thread_names(process) and not in_rendezvous(process)


def in_rendezvous(process: Process) -> bool:
    """Whether a thread of a process is in a rendezvous, by its Python frames or by its native ones."""
    if any(reading(thread).in_rendezvous for thread in known.python_threads(process)):
        return True
    native = process.native.threads if isinstance(process.native, Stack) else ()
    return any(cpp_names.CONNECT.search(inner_native_functions(thread)) for thread in native)


def inner_native_functions(thread: PythonThread) -> str:
    """The native functions that the innermost Python frame of a thread called, one on each line: older calls are not its wait."""
    return "\n".join(frame.function for frame in takewhile(lambda frame: frame.native, thread.frames))
