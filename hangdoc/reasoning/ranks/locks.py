"""Locks inside one process: which threads wait for one, and whether a thread does not release the GIL.

No record says which thread holds a lock, but the `with` statements around the lines of each thread do.
"""

from collections.abc import Collection
from typing import NamedTuple

from hangdoc.parse import was_removed
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import FUTEX
from hangdoc.reasoning.evidence.stack import (
    Handling,
    find_handler,
    innermost,
    innermost_user_frame,
    lines_of,
    user_frames,
)
from hangdoc.reasoning.model.holds import AtLock, Ends, Fault, is_held_only_by
from hangdoc.reasoning.ranks.movement import (
    describe_delay,
    find_kernel_thread,
    own_kernel_thread,
    rests,
    threads_at_work,
    tid_of,
)
from hangdoc.regex import regex
from hangdoc.snapshot import AwaitedFile, Clocks, Frame, KernelThread, Process, PythonThread, Unavailable
from hangdoc.torch_facts import file_names

_WAITS_FOR_GIL = 50
"""Wake-ups a second of a thread that asks for the GIL: it does so every 5 ms (sys.getswitchinterval)."""
_IDLE = 0.02
_SHOWN_HOLDERS = 3
_IMPORTLIB = "importlib._bootstrap"
ThreadAt = tuple[PythonThread, Frame]
"""A thread that waits for a lock or holds one, and the frame of the user's code in which it does."""
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
        its_kernel = find_kernel_thread(process, other.tid)
        idle = its_kernel is not None and window > 0 and its_kernel.cpu_ns / 1e9 / window < _IDLE
        stands = idle and describe_delay(process, its_kernel) is None
        asks = kernel is not None and (kernel.voluntary_switches or 0) > _WAITS_FOR_GIL * max(window, 0.1)
        if stands or asks:
            return other
    return None


def keeps_gil(process: Process, thread: PythonThread) -> bool:
    """Whether a thread held the GIL at both looks, at the same line."""
    return thread.owns_gil and any(
        earlier.tid == thread.tid and earlier.owns_gil and lines_of(earlier) == lines_of(thread)
        for earlier in observed.threads_before(process)
    )


def find_threads_at_locks(process: Process) -> list[ThreadAt]:
    """Threads that are at a `with lock:` or an `.acquire(` of the user's code, in the futex system call, for the whole window."""
    before = {thread.tid: thread for thread in observed.threads_before(process)}
    at_locks = []
    for thread in observed.python_threads(process):
        own = user_frames(thread)
        if not own or not _takes_lock(thread, own[0]):
            continue
        earlier, kernel = before.get(thread.tid), own_kernel_thread(process, thread)
        if before or kernel is None:
            stays = earlier is not None and lines_of(earlier) == lines_of(thread)
        else:
            stays = rests(process, kernel)  # of a process that is no rank, there is one look
        if not stays:
            continue
        if kernel is None or kernel.syscall in (FUTEX, None):
            at_locks.append((thread, own[0]))
    return at_locks


def _takes_lock(thread: PythonThread, frame: Frame) -> bool:
    top = innermost(thread)
    if top is not None and _IMPORTLIB in top.file and "acquire" in top.function:
        return True
    source = frame.source or ""
    above = [inner for inner in thread.frames[: thread.frames.index(frame)] if not inner.native]
    # threading's own locks are in Python. But a `with` may also wait for a thread, in the `__exit__` of a pool.
    inside = not above or (
        all(inner.file.endswith("/threading.py") for inner in above) and above[-1].function in ("acquire", "__enter__")
    )
    return inside and (source.startswith(("with ", "async with ")) or ".acquire(" in source)


def find_gil_wait(process: Process, thread: PythonThread, kernel: KernelThread | None) -> AtLock | None:
    """Another thread of the process holds the GIL that `thread` needs; None if none does."""
    holder = find_gil_holder(process, thread, kernel)
    if holder is None:
        return None
    return AtLock(
        what=f"thread {name_thread(holder)} holds the GIL {_describe_line(holder)} and does not release it"
        + _describe_c_call(process, holder),
        fault="gil",
        certainty=0.93,
        threads=(_describe_thread(holder, "holds the GIL"), _describe_thread(thread, "is waiting for the GIL")),
    )


def find_lock(process: Process, thread: PythonThread, kernel: KernelThread | None) -> AtLock | None:
    """The lock that blocks a thread; None if none is known."""
    if (by_the_gil := find_gil_wait(process, thread, kernel)) is not None:
        return by_the_gil
    if keeps_gil(process, thread):
        what = f"a C call {_describe_line(thread)} does not release the GIL{_describe_c_call(process, thread)}"
        return AtLock(what=what, fault="gil", certainty=0.75, threads=(_describe_thread(thread, "holds the GIL"),))
    waiting = find_threads_at_locks(process)
    here = next((at for at in waiting if at[0].tid == thread.tid), None)
    return _describe_lock(process, thread, here, waiting) if here is not None else None


def find_own_file_lock(process: Process, thread: PythonThread, file: AwaitedFile) -> AtLock | None:
    """The lock on a file that the process holds itself, through another open file (flock(2)); None for any other. Only another of
    its threads may release it."""
    if not is_held_only_by(file, process.pid):
        return None
    others = [other for other in observed.python_threads(process) if other is not thread and user_frames(other)]
    alone = not others and others_are_idle(process, {tid_of(process, thread)})
    what = f"it waits for a lock on {file.name} that its own process holds"
    lines = (
        _describe_thread(thread, "is waiting for the lock"),
        *(_describe_thread(other, "is") for other in others[:3]),
    )
    return AtLock(what=what, fault="own-file", certainty=0.9, threads=lines, ends="never" if alone else "unknown")


def _describe_lock(process: Process, thread: PythonThread, here: ThreadAt, waiting: list[ThreadAt]) -> AtLock | None:
    """The lock at which `here` waits. `thread` is the one that is blocked by that."""
    if len(waiting) == 1 and threads_at_work(process, thread):
        return None  # one of them may hold the lock
    lines = tuple(_describe_thread(waiter, "is waiting for a lock") for waiter, _ in waiting[:4])
    if (held := find_holder(process, here, waiting)) is not None:
        idle = others_are_idle(process, {thread.tid, *(waiter.tid for waiter, _ in waiting)})
        name, holder, frame = name_thread(held.thread), held.thread, held.frame
        lines = (f"thread {name} is {held.inside} {_describe_frame(frame)}", *lines)
        if held.joined is not None and held.in_cycle:
            what = f"thread {name} holds {held.name} {_describe_line(holder)}, where it waits for the end of thread "
            what += f"{name_thread(held.joined)}, which needs the lock"
            fault: Fault = "importing" if held.imports else "joined"
            return AtLock(what=what, fault=fault, certainty=0.95, threads=lines, ends="never")
        if held.again and (handling := _find_handling(held)) is not None:
            what = f"the handler of {handling.signal} waits for {held.name}, which the code that it interrupted takes "
            what += f"{_describe_frame(frame)}"
            lines = (str(handling), *(_describe_thread(waiter, "is waiting for a lock") for waiter, _ in waiting[:4]))
            ends: Ends = "never" if idle else "unknown"
            return AtLock(what=what, fault="handler", certainty=0.93, threads=lines, ends=ends)
        if held.again:
            what = f"thread {name} holds {held.name} and waits for it again {_describe_line(holder)}"
            return AtLock(what=what, fault="again", certainty=0.93, threads=lines, ends="never" if idle else "unknown")
        if not held.waits:
            holds = "probably holds" if held.inferred else "holds"
            what = f"thread {name} {holds} {held.name} {_describe_line(holder)}"
            certainty = 0.75 if held.inferred else 0.85
            return AtLock(
                what=what,
                fault="unreleased",
                certainty=certainty,
                threads=lines,
                holder=holder,
                inferred=held.inferred,
            )
    proved = held is not None and held.in_cycle
    if proved or len({(frame.file, frame.line) for _, frame in waiting}) > 1:  # at one line, they wait for one lock
        names = " and ".join(f"{name_thread(waiter)} at `{frame.source}`" for waiter, frame in waiting[:2])
        # Where the source does not show who holds which lock, different lines mean different locks.
        crosswise = len({frame.source for _, frame in waiting}) > 1 and others_are_idle(
            process, {waiter.tid for waiter, _ in waiting}
        )
        what = f"its threads are waiting for each other's locks: {names}"
        ends = "never" if proved or crosswise else "unknown"
        return AtLock(what=what, fault="crosswise", certainty=0.92, threads=lines, ends=ends)
    if possible := _list_possible_holders(process, here, waiting):
        inside = [
            f"thread {name_thread(other)} is inside `with {lock}` {_describe_frame(at)}" for other, at, lock in possible
        ]
        what = f"its thread waits for the lock {_describe_line(thread)}, and {inside[0]}, which may be the same lock"
        return AtLock(what=what, fault="inside", certainty=0.75, threads=(*inside[:_SHOWN_HOLDERS], *lines))
    what = f"no thread releases the lock {_describe_line(thread)}"
    return AtLock(what=what, fault="unreleased", certainty=0.75, threads=lines)


def others_are_idle(process: Process, waiting: Collection[int | None]) -> bool:
    """Whether all threads of a process but those in `waiting` (tids) are idle. Otherwise one of them may end the wait."""
    if not isinstance(process.clocks, Clocks):
        return False
    idle = _IDLE * 1e9 * process.clocks.window_seconds
    return all(thread.cpu_ns < idle for thread in process.clocks.threads if thread.tid not in waiting)


def name_at(thread: PythonThread) -> str:
    """`heartbeat at train.py:18 `time.sleep(1000)``."""
    return f"{name_thread(thread)} {_describe_line(thread)}"


def name_thread(thread: PythonThread) -> str:
    """`MainThread`; of one without a name, its number and its outermost function: `418 (merge)`."""
    if thread.name and not was_removed(thread.name):
        return thread.name
    own = user_frames(thread)
    return f"{thread.tid} ({own[-1].function})" if own else str(thread.tid)


def _describe_line(thread: PythonThread) -> str:
    frame = innermost_user_frame(thread) or innermost(thread)
    return _describe_frame(frame) if frame is not None else "at an unknown line"


def _describe_frame(frame: Frame) -> str:
    return f"at {frame.file.rpartition('/')[2]}:{frame.line}" + (f" `{frame.source}`" if frame.source else "")


def _describe_thread(thread: PythonThread, what: str) -> str:
    return f"thread {name_thread(thread)} {what} {_describe_line(thread)}"


def _describe_c_call(process: Process, thread: PythonThread) -> str:
    """The C function that a thread is in, if native frames were read."""
    if isinstance(process.native, Unavailable):
        return ""
    native = next((each for each in process.native.threads if each.tid == thread.tid), None)
    frame = native.frames[0] if native is not None and native.frames and native.frames[0].native else None
    return f" (in {frame.function} of {frame.file.rpartition('/')[2]})" if frame else ""


class LockHolder(NamedTuple):
    """The thread that holds a lock."""

    thread: PythonThread
    frame: Frame
    """Where it is inside the `with` block of the lock."""
    lock: str
    """As the source names it, or the module."""
    again: bool = False
    """Whether it waits for the lock that it holds."""
    waits: bool = False
    """Whether it waits for another lock, or for the end of a thread that does."""
    joined: PythonThread | None = None
    """The thread for whose end it waits, if that waits for a lock."""
    in_cycle: bool = False
    """Whether the chain leads back to a thread in it: threads that hold each other's locks, or wait for each other's ends."""
    imports: bool = False
    """Whether it is the lock of a module that the thread imports."""
    inferred: bool = False
    """Whether only the attribute's name says that it is this lock: the object that has it is not known."""

    @property
    def name(self) -> str:
        """The lock, as people call it."""
        return f"the lock of the import of {self.lock}" if self.imports else f"`{self.lock}`"

    @property
    def inside(self) -> str:
        """What the thread is doing meanwhile."""
        if self.imports:
            return f"importing {self.lock}"
        return f"inside `with {self.lock}`{' (probably the same lock)' * self.inferred}"


def find_holder(process: Process, at: ThreadAt, waiting: list[ThreadAt]) -> LockHolder | None:
    """The thread at the end of a chain: `at` waits for a lock whose holder may itself be in `waiting`, and so on. Of a cycle of
    several threads, one of them. An inferred one is no part of a longer chain. None where the source does not show who holds a
    lock."""
    seen: list[PythonThread] = []
    last: LockHolder | None = None
    while at[0] not in seen:
        thread, frame = at
        seen.append(thread)
        module = _find_awaited_module(thread)
        name = module or _find_awaited_name(frame)
        if name is None:
            return last
        lock = _identify_lock(frame, name)
        inside = _find_importer(process, thread, module) if module is not None else _find_thread_inside(process, lock)
        if inside is None:
            return last or _infer_holder(process, at, name, waiting)
        holder, block = inside
        joined = _find_joined_thread(process, holder) if not _gives_up(process, thread, frame) else None
        onward = next((waiter for waiter in waiting if waiter[0] is (joined or holder)), None)
        ended = joined if onward is not None else None
        last = LockHolder(
            holder,
            block,
            name,
            again=holder is thread,
            waits=onward is not None,
            joined=ended,
            imports=module is not None,
        )
        if onward is None or holder is thread:
            return last
        at = onward
    return last._replace(in_cycle=True) if last is not None else None


def _find_handling(held: LockHolder) -> Handling | None:
    """The handler of a signal in which a thread waits for the lock that the interrupted code, or what called it, holds."""
    handling, frames = find_handler(held.thread), held.thread.frames
    if handling is None or frames.index(held.frame) < frames.index(handling.interrupted):
        return None
    return handling


def find_threads_behind(process: Process, thread: PythonThread) -> list[tuple[PythonThread, LockHolder]]:
    """The threads that wait for a lock which `thread` holds while it waits for no lock itself, and how it holds it."""
    waiting = find_threads_at_locks(process)
    holders = ((at[0], find_holder(process, at, waiting)) for at in waiting if at[0] is not thread)
    known = [(waiter, held) for waiter, held in holders if held is not None and not held.inferred]
    return [(waiter, held) for waiter, held in known if held.thread is thread and not held.waits]


def _gives_up(process: Process, thread: PythonThread, frame: Frame) -> bool:
    """Whether a thread waits for a lock only for a time."""
    kernel = own_kernel_thread(process, thread)
    timed = kernel is not None and kernel.timed is True
    return timed or any(word in (frame.source or "") for word in ("timeout", "blocking", "acquire(True,"))


def _find_joined_thread(process: Process, thread: PythonThread) -> PythonThread | None:
    """The thread for whose end another one waits without a timeout (`Thread.join`): both have the same `threading.Thread` object
    as `self`, the one in `join`, the other in `run` or what calls it."""
    join = _find_own_method(thread, "join")
    target = _address_of(join, "self")
    if join is None or target is None or any(local.name == "timeout" and local.text != "None" for local in join.locals):
        return None
    others = (other for other in observed.python_threads(process) if other is not thread)
    return next(
        (other for other in others if _address_of(_find_own_method(other, "_bootstrap"), "self") == target), None
    )


def _find_own_method(thread: PythonThread, name: str) -> Frame | None:
    """The frame of a method of `threading.Thread`."""
    methods = (frame for frame in thread.frames if frame.file.endswith("/threading.py"))
    return next((frame for frame in methods if file_names.bare_name(frame.function) == name), None)


def _address_of(frame: Frame | None, name: str) -> int | None:
    variables = frame.locals if frame is not None else ()
    return next((local.address for local in variables if local.name == name), None)


def _find_thread_inside(process: Process, lock: _Lock) -> ThreadAt | None:
    """The thread that is in the `with` block of a lock, and its frame there; None if several are, as with a semaphore. The `wait`
    of a condition gives its lock back meanwhile."""
    inside = {
        thread.tid: (thread, frame)
        for thread in observed.python_threads(process)
        for frame in reversed(user_frames(thread))
        for name in (*frame.contexts, *_list_interrupted(process, thread, frame))
        if _identify_lock(frame, name) == lock and f"{name}.wait" not in (frame.source or "")
    }
    return next(iter(inside.values())) if len(inside) == 1 else None


def _infer_holder(process: Process, at: ThreadAt, name: str, waiting: list[ThreadAt]) -> LockHolder | None:
    """The only thread that is, in the same file, in the `with` block of a lock of the same name of an object that is not known,
    such as a variable of an outer function, and that waits for no lock itself; None for none, and for several."""
    thread, here = at
    attribute = name.rpartition(".")[2]
    busy = [thread, *(waiter for waiter, _ in waiting)]
    inside = {
        other.tid: LockHolder(other, frame, context, inferred=True)
        for other in observed.python_threads(process)
        for frame in reversed(user_frames(other))
        for context in frame.contexts
        if frame.file == here.file
        and _is_of_unknown_object(frame, context, attribute)
        and f"{context}.wait" not in (frame.source or "")
    }
    holders = list(inside.values())
    return holders[0] if len(holders) == 1 and holders[0].thread not in busy else None


class _PossibleHolder(NamedTuple):
    """A thread inside of the `with` block of a lock that may be the awaited one, its frame there, and the lock in its source."""

    thread: PythonThread
    frame: Frame
    lock: str


def _list_possible_holders(process: Process, at: ThreadAt, waiting: list[ThreadAt]) -> list[_PossibleHolder]:
    """The threads that wait for no lock themselves and are, in any file, in the `with` block of a lock of the same name of an
    object that is not known, such as an attribute of a module."""
    name = _find_awaited_name(at[1])
    if name is None or "." not in name:
        return []
    busy = {at[0].tid, *(waiter.tid for waiter, _ in waiting)}
    return [
        _PossibleHolder(other, frame, context)
        for other in observed.python_threads(process)
        for frame in user_frames(other)
        for context in frame.contexts
        if other.tid not in busy
        and _is_of_unknown_object(frame, context, name.rpartition(".")[2])
        and f"{context}.wait" not in (frame.source or "")
    ]


def _is_of_unknown_object(frame: Frame, context: str, attribute: str) -> bool:
    """Whether a `with` is about an attribute of this name, of an object that no variable of the frame shows."""
    owner, _, rest = context.partition(".")
    return bool(rest) and rest.rpartition(".")[2] == attribute and _address_of(frame, owner) is None


def _list_interrupted(process: Process, thread: PythonThread, frame: Frame) -> list[str]:
    """The lock of a `with` whose block is in its own line, where the handler of a signal interrupted that line and no other
    thread can hold the lock."""
    handling = find_handler(thread) if len(observed.python_threads(process)) == 1 else None
    name = _find_awaited_name(frame) if handling is not None and handling.interrupted is frame else None
    return [name] if name is not None else []


def _find_awaited_module(thread: PythonThread) -> str | None:
    """The module for whose lock a thread waits, because another one imports it; None for any other wait. The functions of
    importlib._bootstrap that take the lock have its name as a variable."""
    top = innermost(thread)
    if top is None or _IMPORTLIB not in top.file or file_names.bare_name(top.function) != "acquire":
        return None
    names = (_read_module(frame) for frame in thread.frames if _IMPORTLIB in frame.file)
    return next(filter(None, names), None)


def _find_importer(process: Process, waiting: PythonThread, module: str) -> ThreadAt | None:
    """The thread that executes a module while it imports it, and its line there; None if several do."""
    found = [
        (thread, next((frame for frame in reversed(thread.frames[:at]) if not frame.library), thread.frames[at]))
        for thread in observed.python_threads(process)
        if thread is not waiting
        for at, frame in enumerate(thread.frames)
        if _IMPORTLIB in frame.file and file_names.bare_name(frame.function) == "_load_unlocked"
        and any(_read_module(around) == module for around in thread.frames[at : at + 2])
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _read_module(frame: Frame) -> str | None:
    """The module that a function of importlib was called for."""
    text = next((local.text for local in frame.locals if local.name == "name"), "")
    return None if was_removed(text) else text.strip("'\"") or None


def _find_awaited_name(frame: Frame) -> str | None:
    """The lock for which a line waits, as its source names it."""
    match = _NAMED.search(frame.source or "")
    return (match[1] or match[2]) if match is not None else None


def _identify_lock(frame: Frame, name: str) -> _Lock:
    """What a name means in a frame: two objects of a class have different locks of one name."""
    owner, _, rest = name.partition(".")
    address = _address_of(frame, owner)
    return (address, rest) if address is not None else (frame.file, name)
