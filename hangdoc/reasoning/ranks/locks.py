"""Locks inside one process: which threads wait for one, and whether a thread does not release the GIL.

No record says which thread holds a lock, but the `with` statements around the lines of each thread do.
"""

from collections.abc import Collection
from typing import NamedTuple

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import innermost, lines_of, user_frames
from hangdoc.reasoning.model.holds import AtLock
from hangdoc.reasoning.ranks.movement import thread_of, threads_at_work
from hangdoc.regex import regex
from hangdoc.snapshot import AwaitedFile, Clocks, Frame, KernelThread, Process, PythonThread, Unavailable

_FUTEX = "futex"
_WAITS_FOR_GIL = 50
"""Wake-ups a second of a thread that asks for the GIL: it does so every 5 ms (sys.getswitchinterval)."""
_IDLE = 0.02
At = tuple[PythonThread, Frame]
"""A thread that waits for a lock, and the frame of the user's code in which it does."""
_NAMED = regex(r"(?:^|\s)with ([\w.]+)(?: as \w+)?:|([\w.]+)\.acquire\(")
_Lock = tuple[int | str, str]
"""The object that a lock belongs to by its address, or the file of a global one; and the lock's name in it."""


def find_gil_holder(process: Process, thread: PythonThread, kernel: KernelThread | None) -> PythonThread | None:
    """Another thread that held the GIL at both looks, at the same line, without letting `thread` run; None for none.

    A thread that is stuck in C code while it holds the GIL blocks all others. A thread that computes releases the GIL on request,
    unless the others keep requesting it without success.
    """
    for other in observed.python_threads(process):
        if other.tid in (thread.tid, None) or not other.frames or not keeps_gil(process, other):
            continue
        window = process.clocks.window_seconds if isinstance(process.clocks, Clocks) else 0.0
        mine = thread_of(process, other.tid)
        stands = mine is not None and window > 0 and mine.cpu_ns / 1e9 / window < _IDLE
        asks = kernel is not None and (kernel.voluntary_switches or 0) > _WAITS_FOR_GIL * max(window, 0.1)
        if stands or asks:
            return other
    return None


def keeps_gil(process: Process, thread: PythonThread) -> bool:
    """Whether a thread held the GIL at both looks, at the same line."""
    return thread.owns_gil and any(
        t.tid == thread.tid and t.owns_gil and lines_of(t) == lines_of(thread) for t in observed.threads_before(process)
    )


def threads_at_locks(process: Process) -> list[At]:
    """Threads that are at a `with lock:` or an `.acquire(` of the user's code, in the futex system call, in both stacks."""
    before = {t.tid: t for t in observed.threads_before(process)}
    found = []
    for thread in observed.python_threads(process):
        own = user_frames(thread)
        earlier = before.get(thread.tid)
        if not own or earlier is None or lines_of(earlier) != lines_of(thread) or not _takes_a_lock(thread, own[0]):
            continue
        kernel = thread_of(process, thread.tid if thread.tid is not None else process.pid)
        if kernel is None or kernel.syscall in (_FUTEX, None):
            found.append((thread, own[0]))
    return found


def _takes_a_lock(thread: PythonThread, frame: Frame) -> bool:
    top = innermost(thread)
    if top is not None and "importlib._bootstrap" in top.file and "acquire" in top.function:
        return True
    source = frame.source or ""
    above = [one for one in thread.frames[: thread.frames.index(frame)] if not one.native]
    # threading's own locks are in Python. But a `with` may also wait for a thread, in the `__exit__` of a pool.
    inside = not above or (
        all(one.file.endswith("/threading.py") for one in above) and above[-1].function in ("acquire", "__enter__")
    )
    return inside and (source.startswith(("with ", "async with ")) or ".acquire(" in source)


def find_gil_wait(process: Process, thread: PythonThread, kernel: KernelThread | None) -> AtLock | None:
    """Another thread of the process holds the GIL that `thread` needs; None if none does."""
    holder = find_gil_holder(process, thread, kernel)
    if holder is None:
        return None
    return AtLock(
        what=f"thread {_name(holder)} holds the GIL {_at(holder)} and does not release it{_c_call(process, holder)}",
        certainty=0.93,
        threads=(_line(holder, "holds the GIL"), _line(thread, "is waiting for the GIL")),
    )


def find_lock(process: Process, thread: PythonThread, kernel: KernelThread | None) -> AtLock | None:
    """The lock that blocks a thread; None if none is known."""
    if (by_the_gil := find_gil_wait(process, thread, kernel)) is not None:
        return by_the_gil
    if keeps_gil(process, thread):
        what = f"a C call {_at(thread)} does not release the GIL{_c_call(process, thread)}"
        return AtLock(what=what, certainty=0.75, threads=(_line(thread, "holds the GIL"),))
    waiting = threads_at_locks(process)
    here = next((at for at in waiting if at[0].tid == thread.tid), None)
    return _at_lock(process, thread, here, waiting) if here is not None else None


def find_own_file_lock(process: Process, thread: PythonThread, file: AwaitedFile) -> AtLock | None:
    """The lock on a file that the process holds itself, through another open file (flock(2)); None for any other. Only another of
    its threads may release it."""
    if {one.pid for one in file.holders or ()} != {process.pid}:
        return None
    others = [one for one in observed.python_threads(process) if one is not thread and user_frames(one)]
    alone = not others and others_are_idle(process, {thread.tid or process.pid})
    what = f"it waits for a lock on {file.name} that its own process holds"
    lines = tuple(
        _line(one, doing) for one, doing in ((thread, "is waiting for the lock"), *((o, "is") for o in others[:3]))
    )
    return AtLock(what=what, certainty=0.9, threads=lines, ends="never" if alone else "unknown")


def _at_lock(process: Process, thread: PythonThread, here: At, waiting: list[At]) -> AtLock | None:
    """The lock at which `here` waits. `thread` is the one that is blocked by that."""
    if len(waiting) == 1 and threads_at_work(process, thread):
        return None  # one of them may hold the lock
    lines = tuple(_line(one, "is waiting for a lock") for one, _ in waiting[:4])
    if (known_holder := find_holder(process, here, waiting)) is not None:
        idle = others_are_idle(process, {thread.tid, *(one.tid for one, _ in waiting)})
        name, holder, frame = _name(known_holder.thread), known_holder.thread, known_holder.frame
        inside = f"thread {name} is inside `with {known_holder.lock}` {_shown(frame)}"
        lines = (inside, *lines)
        if known_holder.again:
            what = f"thread {name} holds `{known_holder.lock}` and waits for it again {_at(holder)}"
            return AtLock(what=what, certainty=0.93, threads=lines, ends="never" if idle else "unknown")
        if not known_holder.waits:
            what = f"thread {name} holds `{known_holder.lock}` {_at(holder)}"
            return AtLock(what=what, certainty=0.85, threads=lines)
    if len(waiting) > 1:
        names = " and ".join(f"{_name(one)} at `{frame.source}`" for one, frame in waiting[:2])
        # Where the source does not show who holds which lock, different lines mean different locks.
        proved = known_holder is not None and known_holder.in_cycle
        crosswise = len({frame.source for _, frame in waiting}) > 1 and others_are_idle(
            process, {one.tid for one, _ in waiting}
        )
        what = f"its threads are waiting for each other's locks: {names}"
        return AtLock(what=what, certainty=0.92, threads=lines, ends="never" if proved or crosswise else "unknown")
    return AtLock(what=f"no thread releases the lock {_at(thread)}", certainty=0.75, threads=lines)


def others_are_idle(process: Process, waiting: Collection[int | None]) -> bool:
    """Whether all threads of a process but those in `waiting` (tids) are idle. Otherwise one of them may end the wait."""
    if not isinstance(process.clocks, Clocks):
        return False
    idle = _IDLE * 1e9 * process.clocks.window_seconds
    return all(thread.cpu_ns < idle for thread in process.clocks.threads if thread.tid not in waiting)


def _name(thread: PythonThread) -> str:
    return thread.name or str(thread.tid)


def _at(thread: PythonThread) -> str:
    frame = next(iter(user_frames(thread)), None) or innermost(thread)
    return _shown(frame) if frame is not None else "at an unknown line"


def _shown(frame: Frame) -> str:
    return f"at {frame.file.rpartition('/')[2]}:{frame.line}" + (f" `{frame.source}`" if frame.source else "")


def _line(thread: PythonThread, what: str) -> str:
    return f"thread {_name(thread)} {what} {_at(thread)}"


def _c_call(process: Process, thread: PythonThread) -> str:
    """The C function that a thread is in, if native frames were read."""
    if isinstance(process.native, Unavailable):
        return ""
    same = next((t for t in process.native.threads if t.tid == thread.tid), None)
    frame = same.frames[0] if same is not None and same.frames and same.frames[0].native else None
    return f" (in {frame.function} of {frame.file.rpartition('/')[2]})" if frame else ""


class Holder(NamedTuple):
    """The thread that holds a lock."""

    thread: PythonThread
    frame: Frame
    """Where it is inside the `with` block of the lock."""
    lock: str
    """As the source names it."""
    again: bool = False
    """Whether it waits for the lock that it holds."""
    waits: bool = False
    """Whether it waits for another lock."""
    in_cycle: bool = False
    """Whether the chain leads back to a thread in it: threads that hold each other's locks."""


def find_holder(process: Process, at: At, waiting: list[At]) -> Holder | None:
    """The thread at the end of a chain: `at` waits for a lock whose holder may itself be in `waiting`, and so on. Of a cycle of
    several threads, one of them. None where the source does not show who holds a lock."""
    seen: list[PythonThread] = []
    found: Holder | None = None
    while at[0] not in seen:
        thread, frame = at
        seen.append(thread)
        name = _name_in(frame)
        inside = _inside(process, _lock(frame, name)) if name is not None else None
        if inside is None or name is None:
            return found
        holder, block = inside
        onward = next((one for one in waiting if one[0] is holder), None)
        found = Holder(holder, block, name, again=holder is thread, waits=onward is not None)
        if onward is None or holder is thread:
            return found
        at = onward
    return found._replace(in_cycle=True) if found is not None else None


def _inside(process: Process, lock: _Lock) -> At | None:
    """The thread that is in the `with` block of a lock, and its frame there. The `wait` of a condition gives its lock back
    meanwhile."""
    for thread in observed.python_threads(process):
        for frame in user_frames(thread):
            for name in frame.contexts:
                if _lock(frame, name) == lock and f"{name}.wait" not in (frame.source or ""):
                    return thread, frame
    return None


def _name_in(frame: Frame) -> str | None:
    """The lock for which a line waits, as its source names it."""
    found = _NAMED.search(frame.source or "")
    return (found[1] or found[2]) if found is not None else None


def _lock(frame: Frame, name: str) -> _Lock:
    """What a name means in a frame: two objects of a class have different locks of one name."""
    owner, _, rest = name.partition(".")
    address = next((local.address for local in frame.locals if local.name == owner), None)
    return (address, rest) if address is not None else (frame.file, name)
