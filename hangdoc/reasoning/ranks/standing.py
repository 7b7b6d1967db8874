"""What blocks a rank that neither makes progress nor waits for another rank: exactly one reason."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.reasoning.evidence import known, system_calls
from hangdoc.reasoning.evidence.frames import user_frames
from hangdoc.reasoning.evidence.reading import reading
from hangdoc.reasoning.model.holds import (
    AtFileLock,
    AtLock,
    AtSharedLock,
    BlocksItsChild,
    Elsewhere,
    Ends,
    Hold,
    InFile,
    OnNetwork,
    ProgramOver,
    ReadsPipe,
    Serves,
    Unreadable,
    WaitsForInput,
    WaitsForLoader,
)
from hangdoc.reasoning.ranks import loader, locks, network, sleeps
from hangdoc.reasoning.ranks.child_waits import blocked_child, on_child, stopped_child
from hangdoc.reasoning.ranks.feeding import fetching
from hangdoc.reasoning.ranks.movement import kernel_thread, thread_of
from hangdoc.reasoning.ranks.open_files import abandoned, in_words, is_fifo
from hangdoc.reasoning.ranks.renewals import CHILD_FILES
from hangdoc.regex import regex
from hangdoc.snapshot import AwaitedFile, Connection, Frame, KernelThread, Process, PythonThread
from hangdoc.torch_facts import file_names

_STUCK_IN_FILES = ("nfs", "rpc_wait", "fuse", "wait_for_partner", "folio_wait", "io_schedule", "request_wait", "ceph",
                   "cifs", "lustre", "cl_sync", "pipe_write", "anon_pipe_write", "pipe_wait")  # fmt: skip
_WAKES_BY_OBSERVERS = 4
_SHOWN_THREADS = 3
_LOCK_FILES = ("/threading.py", "/queue.py", "/_weakrefset.py", "<frozen importlib._bootstrap>")
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/cmd.py", "/IPython/", "/ipdb/", "/debugpy/", "/pudb/")

_BREAKPOINT = regex(r"\b(breakpoint|set_trace|post_mortem)\(")


class Standing(NamedTuple):
    """State, reason in one phrase, and what blocks the rank."""

    state: str
    why: str
    hold: Hold


def standing_of(
    process: Process,
    thread: PythonThread,
    kernel: KernelThread | None,
    helpers: Sequence[Process],
    connections: Sequence[Connection],
) -> Standing:
    """The first reason that fits, the most certain ones first. `connections`: all of the process, with its listening sockets.

    It is one long function because the order of the checks is what it knows.
    """
    top: Frame | None = next((f for f in thread.frames if not f.native), None)
    source = (top.source or "") if top else ""
    call = kernel.syscall if kernel else None
    wchan = (kernel.wchan or "") if kernel else ""
    file = kernel.files[0] if kernel is not None and kernel.files else None
    if any(d in f.file for f in thread.frames for d in _DEBUGGERS) or any(map(_is_breakpoint, user_frames(thread))):
        online = network.of(process, kernel, connections)
        where = f" on {online.address}" if isinstance(online, Serves) else ""
        return Standing("waiting-input", f"waiting for user input in an interactive debugger{where}", WaitsForInput())
    if (call in system_calls.READ and file is not None and file.descriptor == 0) or (
        "input(" in source and call not in system_calls.SLEEP
    ):
        why = f"waiting for user input on {in_words(file) or 'standard input'}"
        return Standing("waiting-input", why, WaitsForInput())
    ended = abandoned(process, thread, wchan, file)
    stuck = InFile(wchan=wchan, file=file, ends="never" if ended else "unknown")
    if (
        stuck.ends == "never"
        and locks.keeps_gil(process, thread)
        and (gil := locks.hold_of(process, thread, kernel)) is not None
    ):
        # The thread of this process that holds the other end cannot run either.
        return Standing("waiting-io", f"reading {in_words(file)} while holding the GIL", gil)
    reads_pipe = call in system_calls.READ and file is not None and file.kind == "pipe"
    if not reads_pipe and (
        (kernel is not None and kernel.state == "D")
        or any(word in wchan for word in _STUCK_IN_FILES)
        or call in system_calls.ON_FILES
        or (file is not None and file.kind == "path")
    ):
        return Standing("waiting-io", f"in a file system call ({in_words(file) or f'wchan {wchan or call}'})", stuck)
    if (
        call in system_calls.SLEEP
        and thread.tid == process.pid
        and (polled := _polled_lock(process, thread, kernel)) is not None
    ):
        return _at_file_lock(process, thread, polled)
    if call in system_calls.FILE_LOCK and file is not None:
        return _at_file_lock(process, thread, file)
    if (waits := _loading(thread, helpers, connections)) is not None:
        if not waits.by_rank:
            return Standing("waiting-data", "waiting for a dataloader worker", waits)
        if kernel is None:
            return Standing("waiting-data", "loading data itself", Unreadable())
        if call in system_calls.SLEEP:
            waits = replace(waits, ends=sleeps.asleep(thread, kernel).ends)
            return Standing("waiting-data", "loading data itself", waits)
    if reading(thread).is_over:
        over = ProgramOver(what=f"at the end of its program: its main thread is over, and {_keepers(process, thread)}")
        return Standing("waiting-lock", over.what or "", over)
    if (halted := stopped_child(process, thread, helpers)) is not None:
        return Standing("waiting-child", str(halted), halted)
    if file is not None and file.kind == "shared-memory":
        return _at_shared_lock(process, thread, file)
    lock = locks.hold_of(process, thread, kernel)
    if (nap := sleeps.nap(process, thread, kernel)) is not None:
        return Standing("sleeping", str(nap), nap)
    if call in system_calls.SLEEP:
        asleep = sleeps.asleep(thread, kernel)
        return Standing("sleeping", str(asleep), lock or asleep)
    if (writer := blocked_child(process, kernel, helpers)) is not None:
        whom = f"{writer.process.pid} ({writer.process.name})"
        why = f"waiting for its child process {whom}, which waits until this rank reads its {writer.what}"
        return Standing("waiting-child", why, BlocksItsChild(pid=writer.process.pid))
    if reads_pipe and file is not None:
        return _reading(process, file, stuck.ends, helpers)
    if call in system_calls.READ | system_calls.WRITE and file is not None and file.kind in ("file", "pipe"):
        return Standing(
            "waiting-io", f"{'reading' if call in system_calls.READ else 'writing to'} {in_words(file)}", stuck
        )
    if call in system_calls.NETWORK and (child := on_child(process, kernel, helpers)) is not None:
        about = f"waiting for output of its child process (pid {child.pid}, {child.name})"
        return Standing("waiting-child", about, lock or Elsewhere())
    if lock is None and call == system_calls.FUTEX:
        lock = locks.of_other_threads(process, thread)
        elsewhere = network.of_other_threads(process, thread, connections)
        if elsewhere is not None:
            return Standing("waiting-lock", f"waiting for a thread that is {elsewhere}", elsewhere)
    if waits is not None and lock is None:
        return Standing("waiting-data", "loading data itself", waits)
    return _by_name(thread, kernel, lock, network.of(process, kernel, connections))


def _keepers(process: Process, main: PythonThread) -> str:
    """The threads that keep a process alive after the end of its main thread, with their lines, as a clause."""
    others = [one for one in known.python_threads(process) if one is not main]
    names = known.keeps_alive(process)
    keepers = [one for one in others if one.name in names] or sorted(others, key=lambda one: not user_frames(one))
    if not keepers:
        return f"thread {names[0]} keeps the process alive" if names else "another thread keeps the process alive"
    which = ", ".join(locks.name_at(one) for one in keepers[:_SHOWN_THREADS])
    if len(keepers) == 1:
        return f"thread {which} keeps the process alive"
    if names:
        return f"threads {which} keep the process alive"
    return f"one of its other threads keeps the process alive ({which})"


def _loading(
    thread: PythonThread, helpers: Sequence[Process], connections: Sequence[Connection]
) -> WaitsForLoader | None:
    """The wait of a thread in torch's DataLoader; None for any other thread."""
    if not any(f.file.endswith(file_names.DATALOADER) for f in thread.frames):
        return None
    return loader.hold_of(thread, helpers, lambda worker, one: _worker_waits(worker, one, connections))


def _is_breakpoint(frame: Frame) -> bool:
    """Whether a line starts a debugger, of whatever package or class (`sys.breakpointhook`)."""
    return frame.source is not None and _BREAKPOINT.search(frame.source) is not None


def _worker_waits(worker: Process, thread: PythonThread, connections: Sequence[Connection]) -> loader.Waiting | None:
    """What a thread of a dataloader worker waits for; None if the kernel's data could not be read."""
    if (kernel := kernel_thread(worker, thread)) is None:
        return None
    found = standing_of(worker, thread, kernel, (), connections)
    return loader.Waiting(found.why, found.hold.ends)


def continues(process: Process, thread: PythonThread, helpers: Sequence[Process]) -> str | None:
    """Why the wait of `thread` ends by itself, as a clause: another thread of its process, or one of a child process, continues
    soon although it uses no processor. None if none does."""
    threads = [(process, one) for one in known.python_threads(process) if one is not thread]
    threads += [(helper, one) for helper in helpers for one in known.python_threads(helper)]
    own = thread_of(process, thread.tid if thread.tid is not None else process.pid)
    for owner, one in threads:
        kernel = thread_of(owner, one.tid if one.tid is not None else owner.pid)
        if kernel is None or not user_frames(one):
            continue
        # A short sleep between two pieces of work, not one between two checks of a condition.
        if kernel.syscall in system_calls.SLEEP and (sleep := sleeps.asleep(one, kernel)).ends == "by-itself":
            return f"another thread or a child process sleeps for {sleep.seconds:.1f} s and then continues"
        # A blocked write is woken when somebody reads. An observer that pauses a process wakes all of its threads alike.
        by_observers = _wakes(own) + 1 if owner is process and own is not None else _WAKES_BY_OBSERVERS
        if kernel.syscall in system_calls.WRITE and _wakes(kernel) > by_observers:
            file = in_words(kernel.files[0]) if kernel.files else "a file"
            return f"another thread writes to {file}, and another process reads it"
    return None


def _wakes(kernel: KernelThread) -> int:
    return kernel.voluntary_switches or 0


def _polled_lock(process: Process, thread: PythonThread, kernel: KernelThread | None) -> AwaitedFile | None:
    """The lock file for which a thread polls. It may have a locked file open and sleep for another reason."""
    file = process.polled_lock
    certain = file is not None and (file.kind == "lock" or sleeps.asleep(thread, kernel).polls)
    return file if certain else None


def _at_file_lock(process: Process, thread: PythonThread, file: AwaitedFile) -> Standing:
    """A rank that waits for a file lock. It never gets one that no process has. A holder that is stopped may be stopped for a
    moment."""
    what = f"waiting for a lock on {file.name}"
    if (own := locks.of_own_file(process, thread, file)) is not None:
        return Standing("waiting-lock", what, own)
    hold = AtFileLock.of(file.holders, "never" if file.holders == () else "unknown", path=file.name)
    return Standing("waiting-lock", what, hold)


def _at_shared_lock(process: Process, thread: PythonThread, file: AwaitedFile) -> Standing:
    """Another thread of the process may release it too."""
    alone = file.holders == () and locks.others_are_idle(process, {thread.tid or process.pid})
    hold = AtSharedLock.of(file.holders, "never" if alone else "unknown")
    return Standing("waiting-lock", str(hold), hold)


def _reading(process: Process, file: AwaitedFile, ends: Ends, helpers: Sequence[Process]) -> Standing:
    """A rank that reads from an empty pipe. If its own processes hold the other end, it waits for a child process."""
    writers = None if file.holders is None else tuple(one for one in file.holders if one.pid != process.pid)
    children = {helper.pid for helper in helpers}
    own = writers is not None and all(one.pid in children for one in writers)
    return Standing(
        "waiting-child" if own else "waiting-io",
        f"reading {in_words(file)}, which is empty",
        ReadsPipe.of(writers, ends, fifo=file.name if is_fifo(file) else None),
    )


def _by_name(
    thread: PythonThread, kernel: KernelThread | None, lock: AtLock | None, online: OnNetwork | Serves | None
) -> Standing:
    """The reason by the innermost Python file, if the system call does not show it. It continues `standing_of`: here too, the
    order counts."""
    call = kernel.syscall if kernel else None
    top = next((f for f in thread.frames if not f.native), None)
    own = user_frames(thread)
    source = (own[0].source if own else top.source if top else None) or ""
    file = top.file if top else ""
    # Without data from the kernel, a server and a deadlock look the same.
    unknown = Elsewhere() if kernel is not None else Unreadable()
    other = lock or online or unknown
    if any(name in file for name in CHILD_FILES) or call in system_calls.CHILD:
        return Standing("waiting-child", "waiting for a child process", lock or unknown)
    if fetching(thread):
        return Standing("waiting-data", "inside its data iterator", other)
    if isinstance(online, Serves):
        return Standing("waiting-io", str(online), online)
    if call in system_calls.NETWORK and kernel is not None and kernel.files and kernel.files[0].kind == "pipe":
        return Standing("waiting-io", f"waiting for data in {in_words(kernel.files[0])}", other)
    if online is not None or call in system_calls.NETWORK:
        online = online or OnNetwork()
        return Standing("waiting-io", str(online), lock or online)
    if call in system_calls.SIGNAL:
        return _elsewhere("waiting for a signal", lock)
    if any(name in file for name in _LOCK_FILES) or call == system_calls.FUTEX:
        return Standing("waiting-lock", f"waiting for a lock{f': {source}' if source else ''}", other)
    if call in system_calls.READ and kernel is not None and kernel.files:
        return _elsewhere(f"reading {in_words(kernel.files[0])}", lock)
    return Standing(
        "sleeping",
        f"not making progress (wchan {(kernel and kernel.wchan) or 'unknown'}, system call {call or 'unknown'})",
        other,
    )


def _elsewhere(what: str, lock: AtLock | None) -> Standing:
    return Standing("sleeping", what, lock or Elsewhere(what=what))
