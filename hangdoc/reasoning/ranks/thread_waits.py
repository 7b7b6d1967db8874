"""What a thread waits for, if that is not another rank: one edge of the wait graph beyond ranks.

A provider answers for one kind of wait, from what the kernel shows (system call, files) or from Python's own files in the
stack. The most specific evidence comes first. Who can end such a wait, and whether somebody will, is asked in `enders`.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec.structs import replace

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.evidence.stack import innermost, reading, user_frames
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtLock,
    AtOwnQueue,
    AtSharedLock,
    BlocksItsChild,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    Ends,
    ForOthers,
    GetsRequests,
    Hold,
    InEventLoop,
    InFile,
    OnNetwork,
    ProgramOver,
    ReadsPipe,
    Serves,
    Unreadable,
    WaitsForInput,
    WaitsForLoader,
    WaitsForSignal,
    are_stopped,
    is_held_only_by,
)
from hangdoc.reasoning.ranks import loader, locks, sleeps
from hangdoc.reasoning.ranks.loader import is_fetching
from hangdoc.reasoning.ranks.movement import find_kernel_thread, has_asked_others, kernel_thread, tid_of
from hangdoc.regex import regex
from hangdoc.snapshot import (
    MOST_AWAITED_FILES,
    AwaitedFile,
    Connection,
    Frame,
    Holder,
    KernelThread,
    Process,
    PythonThread,
)
from hangdoc.torch_facts import file_names, thread_names
from hangdoc.torch_facts.frameworks import TASK_LOOPS

_STUCK_IN_FILES = ("nfs", "rpc_wait", "fuse", "wait_for_partner", "folio_wait", "io_schedule", "request_wait", "ceph",
                   "cifs", "lustre", "cl_sync", "pipe_write", "anon_pipe_write", "pipe_wait")  # fmt: skip
_WAKES_BY_OBSERVERS = 4
_SHOWN_THREADS = 3
_LOCK_FILES = ("/threading.py", "/queue.py", "/_weakrefset.py", "<frozen importlib._bootstrap>")
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/cmd.py", "/IPython/", "/ipdb/", "/debugpy/", "/pudb/")
_BREAKPOINT = regex(r"\b(breakpoint|set_trace|post_mortem)\(")
_POOL = "/concurrent/futures/thread.py"
"""Its `_WorkItem.run` calls what was submitted."""
_FUTURES, _PROCESS_POOL = "/concurrent/futures/_base.py", "/concurrent/futures/process.py"
_PASSES_FILES = "/multiprocessing/resource_sharer.py"
CHILD_FILES = (
    "/subprocess.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/process.py",
    "/concurrent/futures/",
)
"""Parts of the paths of the modules that wait for child processes."""
_FULL_QUEUE = "waiting for room in a full queue"
_EMPTY_QUEUE = "waiting for an entry of an empty queue"
_AWAITED = (
    ("/queue.py", "put", "not_full", _FULL_QUEUE),
    ("/multiprocessing/queues.py", "put", "_sem", _FULL_QUEUE),
    ("/queue.py", "get", "not_empty", _EMPTY_QUEUE),
    ("/threading.py", "join", "", "waiting for the end of a thread"),
    ("/multiprocessing/pool.py", "get", "", "waiting for the result of a pool's task"),
    ("/multiprocessing/pool.py", "next", "", "waiting for the result of a pool's task"),
    ("/concurrent/futures/_base.py", "result", "", "waiting for the result of a task"),
    ("/threading.py", "wait", "_cond.wait(", "waiting for an event that another thread sets"),
    ("/threading.py", "wait", "waiter.acquire(", "waiting for a condition that another thread notifies"),
)
"""Functions of Python, and what stands in their lines where they wait for what. One that calls another here tells more."""
_OWN_TERMINAL = "/dev/tty"
"""From which a program reads a password (tty(4))."""
_CHILD_WAITS = {
    "/subprocess.py": ("wait", "_wait", "communicate", "_communicate"),
    "/multiprocessing/popen_fork.py": ("wait", "poll"),
    "/multiprocessing/process.py": ("join",),
    file_names.SPAWN: ("join",),
    "/multiprocessing/pool.py": ("get", "wait", "next", "join"),
}
"""Functions of Python that wait for child processes."""
_OUTPUTS: dict[int | None, str] = {1: "standard output", 2: "standard error"}


class Engine(NamedTuple):
    """The process that has started a rank, and that takes requests which it may give to the rank: a serving engine, a front
    end."""

    process: Process
    listens: bool
    """It takes them at a socket of its own, or receives them from a process that is not stopped. If not, those come from the
    process that started it, as its functions show, or from a stopped one."""
    waits_for_reply: bool
    """It waits for the reply of a worker to an earlier request."""
    passes_on: bool = False
    """It only receives them from another process: then requests are what a rank waits for that waits for this process, and
    otherwise at most for ranks. They inherit the queues that it makes for them."""
    ranks: Collection[int] = frozenset()
    """The pids of the run on its host."""


class Surroundings(NamedTuple):
    """What is around a rank."""

    helpers: Sequence[Process] = ()
    pairs: Sequence[Connection] = ()
    """Its connections to other ranks."""
    others: Sequence[Connection] = ()
    """Those of its process tree to the world."""
    stores: Sequence[Connection] = ()
    """Those to stores."""
    engine: Engine | None = None
    clocks: sleeps.HostClocks = sleeps.HostClocks()


class Waiter(NamedTuple):
    """A thread about which it is asked what it waits for."""

    process: Process
    thread: PythonThread
    kernel: KernelThread | None
    """The same thread, as the kernel sees it."""
    helpers: Sequence[Process] = ()
    """The child processes of its rank."""
    connections: Sequence[Connection] = ()
    """All of the process, with its listening sockets."""
    before: tuple[int, ...] = ()
    """The threads that wait for this one, by number: the way through the graph that led here."""
    engine: Engine | None = None
    """None if the rank was started by another program, or by a launcher of torch."""

    @property
    def tid(self) -> int:
        """The kernel's number of the thread."""
        return tid_of(self.process, self.thread)

    @property
    def call(self) -> str | None:
        """The system call that it is in."""
        return self.kernel.syscall if self.kernel is not None else None

    @property
    def wchan(self) -> str:
        """The function of the kernel that it is in."""
        return (self.kernel.wchan if self.kernel is not None else None) or ""

    @property
    def file(self) -> AwaitedFile | None:
        """The file that the call names first."""
        return self.kernel.files[0] if self.kernel is not None and self.kernel.files else None

    @property
    def reads_pipe(self) -> bool:
        """Whether it reads from an empty pipe, or waits until there is something in it."""
        if self.kernel is None or self.file is None or self.file.kind != "pipe":
            return False
        waits_for_data = self.call in system_calls.EVENT_LOOP and len(self.kernel.files) == 1 and not self.file.writes
        return waits_for_data or self.call in system_calls.READ

    @property
    def top(self) -> Frame | None:
        """The innermost Python frame."""
        return next((frame for frame in self.thread.frames if not frame.native), None)

    @property
    def unknown(self) -> Hold:
        """A wait about which nothing is known. Without data from the kernel, a server and a deadlock look the same."""
        return Elsewhere() if self.kernel is not None else Unreadable()

    def other_holders(self, file: AwaitedFile) -> tuple[Holder, ...]:
        """The holders of a file but the process itself; empty where they are not known."""
        return tuple(holder for holder in file.holders or () if holder.pid != self.process.pid)


class ThreadWait(NamedTuple):
    """What a thread waits for."""

    state: str
    why: str
    """The reason in one phrase."""
    hold: Hold


def find_wait(waiter: Waiter) -> ThreadWait:
    """What a thread waits for, by the most specific evidence."""
    for provide in _PROVIDERS:
        if (wait := provide(waiter)) is not None:
            return wait
    why = f"not making progress (wchan {waiter.wchan or 'unknown'}, system call {waiter.call or 'unknown'})"
    return ThreadWait("sleeping", why, waiter.unknown)


# --- a person ------------------------------------------------------------------------------------------------------------


def _for_input(waiter: Waiter) -> ThreadWait | None:
    if any(debugger in frame.file for frame in waiter.thread.frames for debugger in _DEBUGGERS) or any(
        map(_is_breakpoint, user_frames(waiter.thread))
    ):
        online = find_peer(waiter)
        where = f" on {online.address}" if isinstance(online, Serves) else ""
        return ThreadWait("waiting-input", f"waiting for user input in an interactive debugger{where}", WaitsForInput())
    source = (waiter.top.source or "") if waiter.top is not None else ""
    reads = waiter.call in system_calls.READ and not waiter.reads_pipe
    file = waiter.file
    reads_terminal = reads and file is not None and (file.descriptor == 0 or file.name == _OWN_TERMINAL)
    if reads_terminal or ("input(" in source and waiter.call not in system_calls.SLEEP):
        where = describe_file(waiter.file) or "standard input"
        return ThreadWait("waiting-input", f"waiting for user input on {where}", WaitsForInput())
    if file is not None and file.kind == "device" and _waits_for_data_of(waiter):
        device = Serves(address=file.name, what="data of a device")
        return ThreadWait("waiting-io", str(device), device)
    return None


def _waits_for_data_of(waiter: Waiter) -> bool:
    """Whether a thread reads from its file, or waits until there is something in that alone, and the kernel can end that."""
    if waiter.kernel is None or waiter.kernel.state == "D" or len(waiter.kernel.files) != 1:
        return False
    return waiter.call in system_calls.READ | system_calls.EVENT_LOOP


def _is_breakpoint(frame: Frame) -> bool:
    """Whether a line starts a debugger, of whatever package or class (`sys.breakpointhook`)."""
    return frame.source is not None and _BREAKPOINT.search(frame.source) is not None


# --- files and pipes -----------------------------------------------------------------------------------------------------


def _for_files(waiter: Waiter) -> ThreadWait | None:
    """In a system call on a file that does not return: a file server, a full pipe, a FIFO that nobody opens."""
    gil = _blocks_writer_by_gil(waiter)
    if gil is not None or waiter.reads_pipe:
        return gil
    file, wchan = waiter.file, waiter.wchan
    if (
        (waiter.kernel is not None and waiter.kernel.state == "D")
        or any(word in wchan for word in _STUCK_IN_FILES)
        or waiter.call in system_calls.ON_FILES
        or (file is not None and file.kind == "path")
    ):
        what = describe_file(file) or f"wchan {wchan or waiter.call}"
        return ThreadWait("waiting-io", f"in a file system call ({what})", _make_in_file(waiter))
    return None


def _blocks_writer_by_gil(waiter: Waiter) -> ThreadWait | None:
    """A thread that reads from its own process and keeps the GIL: the thread that should write cannot run."""
    if not _is_abandoned(waiter) or not locks.keeps_gil(waiter.process, waiter.thread):
        return None
    gil = locks.find_lock(waiter.process, waiter.thread, waiter.kernel)
    why = f"reading {describe_file(waiter.file)} while holding the GIL"
    return ThreadWait("waiting-io", why, gil) if gil is not None else None


def _make_in_file(waiter: Waiter) -> InFile:
    file = waiter.file
    # A FIFO can still be opened by another process.
    stopped = file is not None and file.kind == "pipe" and not is_fifo(file) and are_stopped(waiter.other_holders(file))
    ends: Ends = "never" if stopped or _is_abandoned(waiter) else "by-itself" if _is_read(waiter) else "unknown"
    return InFile(wchan=waiter.wchan, file=waiter.file, ends=ends)


def _is_read(waiter: Waiter) -> bool:
    """Whether another process reads what a thread writes: that wakes it. An observer wakes all threads of the process alike."""
    if waiter.kernel is None or waiter.call not in system_calls.WRITE:
        return False
    threads = observed.threads(waiter.process)
    others = [thread.voluntary_switches or 0 for thread in threads if thread is not waiter.kernel]
    by_observers = min(others) + 1 if others else _WAKES_BY_OBSERVERS
    return (waiter.kernel.voluntary_switches or 0) > by_observers


def _is_abandoned(waiter: Waiter) -> bool:
    """Whether only the process itself holds the other end of a pipe and its other threads are idle, or no process has opened that
    of a FIFO."""
    file = waiter.file
    if "wait_for_partner" in waiter.wchan:
        return True
    return locks.others_are_idle(waiter.process, {waiter.tid}) and (
        file is not None
        and file.kind == "pipe"
        and not is_fifo(file)  # it can still be opened by another process
        # Without holders they could not be seen: a pipe without another end blocks nobody.
        and is_held_only_by(file, waiter.process.pid)
    )


def _for_pipe(waiter: Waiter) -> ThreadWait | None:
    """Reads from an empty pipe, or another call on an open file. If its own processes hold the other end of the pipe, it waits
    for a child process."""
    file = waiter.file
    if file is None:
        return None
    if waiter.reads_pipe:
        others = waiter.other_holders(file) if file.holders is not None else None
        children = {helper.pid for helper in waiter.helpers}
        own = others is not None and bool(children) and all(holder.pid in children for holder in others)
        related = children | {waiter.process.ppid}
        outside = all(
            holder.accepts or (holder.waits_for_events and holder.pid not in related) for holder in others or ()
        )
        fifo = file.name if is_fifo(file) else None
        hold = ReadsPipe.ended_by(others, _make_in_file(waiter).ends, fifo=fifo, from_outside=bool(others) and outside)
        return ThreadWait(
            "waiting-child" if own else "waiting-io", f"reading {describe_file(file)}, which is empty", hold
        )
    if waiter.call in system_calls.READ | system_calls.WRITE and file.kind in ("file", "device", "pipe"):
        verb = "reading" if waiter.call in system_calls.READ else "writing to"
        return ThreadWait("waiting-io", f"{verb} {describe_file(file)}", _make_in_file(waiter))
    return None


def describe_file(file: AwaitedFile | None) -> str:
    """`/data/x (fd 3) on nfs4 (s:/x)`, `a pipe (fd 7)`; empty for none."""
    if file is None:
        return ""
    what = "a pipe" if file.kind == "pipe" and not is_fifo(file) else "a socket" if file.kind == "socket" else file.name
    where = f" on {file.mount}" if file.mount else " on a full file system" if file.full else ""
    return what + (f" (fd {file.descriptor})" if file.descriptor is not None else "") + where


def is_fifo(file: AwaitedFile) -> bool:
    """Whether a pipe has a path."""
    return file.kind == "pipe" and file.name.startswith("/")


# --- locks ---------------------------------------------------------------------------------------------------------------


def _for_file_lock(waiter: Waiter) -> ThreadWait | None:
    """A lock on a file. No thread gets one that no process has: the program that made the lock file has ended."""
    file = waiter.file if waiter.call in system_calls.FILE_LOCK else _find_polled_lock(waiter)
    if file is None:
        return None
    what = f"waiting for a lock on {file.name}"
    if (own := locks.find_own_file_lock(waiter.process, waiter.thread, file)) is not None:
        return ThreadWait("waiting-lock", what, own)
    hold = AtFileLock.ended_by(file.holders, "never" if file.holders == () else "unknown", path=file.name)
    return ThreadWait("waiting-lock", what, hold)


def _find_polled_lock(waiter: Waiter) -> AwaitedFile | None:
    """The lock file for which a main thread polls. It may have a locked file open and sleep for another reason."""
    file = waiter.process.polled_lock
    if file is None or waiter.call not in system_calls.SLEEP or waiter.thread.tid != waiter.process.pid:
        return None
    polls = file.kind == "lock" or sleeps.describe_sleep(waiter.process, waiter.thread, waiter.kernel).polls
    return file if polls else None


def _for_shared_lock(waiter: Waiter) -> ThreadWait | None:
    """A lock in memory that processes share. Another thread of the process may release it too."""
    file = waiter.file
    if file is None or file.kind != "shared-memory":
        return None
    alone = file.holders == () and locks.others_are_idle(waiter.process, {waiter.tid})
    full = _name_awaited(waiter.thread) == _FULL_QUEUE
    ends: Ends = "never" if alone else "unknown"
    of = _find_owner_of_lock(waiter.thread)
    hold = AtSharedLock.ended_by(file.holders, ends, in_queue=full, of=of, file=f"{file.name} {file.inode}")
    return ThreadWait("waiting-lock", str(hold), hold)


def _find_owner_of_lock(thread: PythonThread) -> Literal["lock", "condition", "barrier"]:
    """What the semaphore belongs to at which a thread waits, by the functions of Python that it is in."""
    inner = takewhile(lambda frame: frame.library, thread.frames)
    called = {(frame.file.rpartition("/")[2], file_names.bare_name(frame.function)) for frame in inner}
    if ("synchronize.py", "wait") not in called:
        return "lock"
    return "barrier" if ("threading.py", "_wait") in called else "condition"


def _for_lock(waiter: Waiter) -> ThreadWait | None:
    """A lock of its own process, or the GIL."""
    lock = locks.find_lock(waiter.process, waiter.thread, waiter.kernel)
    return ThreadWait("waiting-lock", lock.what, lock) if lock is not None else None


# --- time ----------------------------------------------------------------------------------------------------------------


def _for_time(waiter: Waiter) -> ThreadWait | None:
    nap = sleeps.find_timed_wait(waiter.process, waiter.thread, waiter.kernel)
    by_timer = waiter.kernel is not None and waiter.kernel.sleep_seconds is not None
    if nap is None and (by_timer or waiter.call in system_calls.SLEEP or sleeps.is_between_sleeps(waiter.kernel)):
        nap = sleeps.describe_sleep(waiter.process, waiter.thread, waiter.kernel)
        if nap.polls and has_asked_others(waiter.connections):
            nap = replace(nap, ends="by-itself")  # they reply, and may say yes the next time
    return ThreadWait("sleeping", str(nap), nap) if nap is not None else None


# --- child processes -----------------------------------------------------------------------------------------------------


def _for_stopped_child(waiter: Waiter) -> ThreadWait | None:
    """A stopped child process, where Python's functions say that the thread waits for children, or where the kernel shows that
    nobody else can write what it reads. Who waits with a timeout may do something about the child."""
    stopped = {helper.pid: (helper, stop) for helper in waiter.helpers if (stop := stopped_by(helper)) is not None}
    if not stopped:
        return None
    writers = _find_awaited_children(waiter)
    only = (
        waiter.kernel is not None and waiter.kernel.timed is False and all(writer.pid in stopped for writer in writers)
    )
    if not waits_for_children(waiter) and not (writers and only):
        return None
    child, stop = next(
        (stopped[writer.pid] for writer in writers if writer.pid in stopped), next(iter(stopped.values()))
    )
    hold = ChildStopped(pid=child.pid, name=child.name, how=stop.why, by=stop.by)
    return ThreadWait("waiting-child", str(hold), hold)


def waits_for_children(waiter: Waiter) -> bool:
    """Whether a thread is in a function of Python that waits for child processes. A future is the result of a child process if a
    thread of this process manages a pool of them."""
    for frame in waiter.thread.frames:
        name = file_names.bare_name(frame.function)
        if any(name in names and frame.file.endswith(file) for file, names in _CHILD_WAITS.items()):
            return True
        if frame.file.endswith(_FUTURES):
            return any(caller.file.endswith(_PROCESS_POOL) for caller in observed.frames(waiter.process))
    return False


def _for_child(waiter: Waiter) -> ThreadWait | None:
    """The end or the output of child processes. It ends as the waits of these end; if one of them waits until this process reads
    its output, neither continues, unless the process gives up after a time."""
    file = waiter.top.file if waiter.top is not None else ""
    writers = _find_awaited_children(waiter)
    by_end = waiter.call in system_calls.CHILD or any(name in file for name in CHILD_FILES)
    if not writers and not by_end:
        return None
    children = writers or [helper for helper in waiter.helpers if helper.ppid == waiter.process.pid]
    untimed = waiter.kernel is not None and waiter.kernel.timed is False
    for child in children:
        if (unread := _find_unread_output(waiter, child)) is not None and (untimed or not unread[1]):
            output, of_queue = unread
            why = f"waiting for its child process {child.pid} ({child.name}), which waits until {output}"
            return ThreadWait("waiting-child", why, BlocksItsChild(pid=child.pid, of_queue=of_queue))
    if len(children) == 1 and untimed and _is_at_lock_alone(children[0]):
        (child,) = children
        hold = ChildAtLock(pid=child.pid, name=child.name, forked=child.argv == waiter.process.argv)
        return ThreadWait("waiting-child", str(hold), hold)
    if waiter.kernel is None:
        return ThreadWait("waiting-child", "waiting for a child process", Unreadable())
    about = "waiting for a child process"
    if writers:
        about = f"waiting for output of its child process (pid {writers[0].pid}, {writers[0].name})"
    passed_on: OnNetwork | Asleep | None = None
    if len(children) == 1:
        passed_on = _find_peer_of_child(waiter, children[0])
        if passed_on is None and writers and not by_end:
            passed_on = _find_poll_of_child(waiter, children[0])
    if passed_on is not None:
        why = f"{about}, which is {passed_on}" if isinstance(passed_on, OnNetwork) else str(passed_on)
        return ThreadWait("waiting-child", why, passed_on)
    return ThreadWait("waiting-child", about, Elsewhere(period=_longest_sleep(waiter.helpers)))


def _is_at_lock_alone(child: Process) -> bool:
    """Whether the only thread of a process waits, without a timeout, for a lock in its own memory that its line takes: no thread
    can release it. A handler of signals may end any other wait, like that of an event."""
    threads, thread = observed.threads(child), _find_main_thread(child)
    top = innermost(thread) if thread is not None else None
    if len(threads) != 1 or child.state in "ZX" or top is None:
        return False
    (only,) = threads
    takes_lock = (top.source or "").startswith("with ") or (top.library and ".acquire(" in (top.source or ""))
    in_futex = only.syscall == system_calls.FUTEX and only.timed is False and not only.files and only.cpu_ns == 0
    return in_futex and takes_lock and not top.file.endswith("/threading.py")  # its events wait by `acquire`, too


def _find_peer_of_child(waiter: Waiter, child: Process) -> OnNetwork | None:
    """What a child process waits for at a connection, if other processes are at its other end. Then so does who waits for it."""
    kernel, thread = find_kernel_thread(child, child.pid), _find_main_thread(child)
    if kernel is None or thread is None:
        return None
    peer = find_peer(Waiter(child, thread, kernel, connections=waiter.connections))
    own = {waiter.process.pid, *(helper.pid for helper in waiter.helpers)}
    if not isinstance(peer, OnNetwork) or not peer.holders or any(holder.pid in own for holder in peer.holders):
        return None
    return peer


def _find_poll_of_child(waiter: Waiter, child: Process) -> Asleep | None:
    """The poll of a child process for whose next output a rank waits, if no other thread or process below the rank may work for
    it: what the child looks for is what the rank waits for."""
    kernel, thread = find_kernel_thread(child, child.pid), _find_main_thread(child)
    alone = len(waiter.helpers) == 1 and len(observed.python_threads(child)) == 1
    if not alone or thread is None or not sleeps.is_polling(child, thread, kernel):
        return None
    return replace(sleeps.describe_sleep(child, thread, kernel), of_child=child.pid)


def _find_main_thread(process: Process) -> PythonThread | None:
    return next((each for each in observed.python_threads(process) if tid_of(process, each) == process.pid), None)


def _find_awaited_children(waiter: Waiter) -> list[Process]:
    """The child processes at the other end of the pipes that a thread reads or polls; none where it waits for anything else."""
    files = waiter.kernel.files if waiter.kernel is not None else ()
    held = {holder.pid for file in files for holder in waiter.other_holders(file)}
    children = [helper for helper in waiter.helpers if helper.pid in held]
    polls = waiter.call in system_calls.NETWORK | system_calls.READ and all(file.kind == "pipe" for file in files)
    return children if polls and len(children) == len(held) else []


def _find_unread_output(waiter: Waiter, child: Process) -> tuple[str, bool] | None:
    """For what a child process waits that writes to another pipe, which is full and which at most the thread could read:
    `this rank reads its standard output`; and whether it is the pipe of a queue, to which a thread of the child writes what was
    put there. The other threads of the child wait meanwhile, without a timeout."""
    threads = observed.threads(child)
    writers = [thread for thread in threads if thread.syscall in system_calls.WRITE and thread.files]
    others = [thread for thread in threads if thread not in writers]
    at_rest = (other.syscall == system_calls.FUTEX and other.timed is False and not other.files for other in others)
    if len(writers) != 1 or not all(at_rest):
        return None
    file = writers[0].files[0]
    read = {file.name for file in waiter.kernel.files} if waiter.kernel is not None else set()
    siblings = [each for each in waiter.helpers if each.ppid == child.ppid and each.state not in "ZX"]
    if waiter.call in system_calls.CHILD and siblings != [child]:
        return None  # it may wait for the end of another one, and read then
    readers = {holder.pid for holder in file.holders or ()} - {child.pid}  # a child of os.fork has both ends
    if file.kind != "pipe" or file.name in read or not file.holders or not readers <= {waiter.process.pid}:
        return None
    if len(observed.python_threads(waiter.process)) > 1:
        return None
    of_queue = writers[0].tid != child.pid
    what = "queue" if of_queue else _OUTPUTS.get(file.descriptor, "output")
    reads = f"this rank reads its {what}" if readers else f"somebody reads its {what}, but no other process has it"
    return reads, of_queue


def _longest_sleep(children: Sequence[Process]) -> float | None:
    """How long the longest sleep of a child process is, such as that of a shell script between two attempts. None for none."""
    wholes = (sleeps.seconds_of_sleep(find_kernel_thread(child, child.pid)) for child in children)
    return max((seconds for seconds in wholes if seconds is not None), default=None)


# --- data ----------------------------------------------------------------------------------------------------------------


def _for_loader(waiter: Waiter) -> ThreadWait | None:
    """A worker of torch's DataLoader; or, without workers, a sleep of the dataset in the rank itself."""
    waits = _find_loading(waiter)
    if waits is None:
        return None
    if not waits.by_rank:
        return ThreadWait("waiting-data", "waiting for a dataloader worker", waits)
    if waiter.kernel is None:
        return ThreadWait("waiting-data", "loading data itself", Unreadable())
    if waiter.call in system_calls.SLEEP:
        ends = sleeps.describe_sleep(waiter.process, waiter.thread, waiter.kernel).ends
        return ThreadWait("waiting-data", "loading data itself", replace(waits, ends=ends))
    return None


def _for_own_loading(waiter: Waiter) -> ThreadWait | None:
    waits = _find_loading(waiter)
    return ThreadWait("waiting-data", "loading data itself", waits) if waits is not None else None


def _find_loading(waiter: Waiter) -> WaitsForLoader | None:
    """The wait of a thread in torch's DataLoader; None for any other thread."""
    if not any(frame.file.endswith(file_names.DATALOADER) for frame in waiter.thread.frames):
        return None

    def wait_of_worker(worker: Process, thread: PythonThread) -> loader.Waiting | None:
        kernel = kernel_thread(worker, thread)
        if kernel is None:
            return None
        wait = find_wait(Waiter(worker, thread, kernel, (), waiter.connections))
        holders = (wait.hold.holders if isinstance(wait.hold, ForOthers) else None) or ()
        own = {waiter.process.pid, *(helper.pid for helper in waiter.helpers)}  # which a worker has inherited from
        return loader.Waiting(wait.why, wait.hold.ends, tuple(holder for holder in holders if holder.pid not in own))

    return loader.find_loader_wait(waiter.thread, waiter.helpers, wait_of_worker)


def _for_iterator(waiter: Waiter) -> ThreadWait | None:
    if not is_fetching(waiter.thread):
        return None
    return ThreadWait("waiting-data", "inside its data iterator", find_peer(waiter) or waiter.unknown)


# --- the end of the program ----------------------------------------------------------------------------------------------


def _for_program_end(waiter: Waiter) -> ThreadWait | None:
    """The main thread is over, and Python waits for the threads that are no daemons."""
    if not reading(waiter.thread).is_over:
        return None
    keepers = _describe_keepers(waiter.process, waiter.thread)
    over = ProgramOver(what=f"at the end of its program: its main thread is over, and {keepers}")
    return ThreadWait("waiting-lock", over.what or "", over)


def _describe_keepers(process: Process, main: PythonThread) -> str:
    """The threads that keep a process alive after the end of its main thread, with their lines, as a clause."""
    others = [thread for thread in observed.python_threads(process) if thread is not main]
    names = observed.keeps_alive(process)
    keepers = [thread for thread in others if thread.name in names]
    keepers = keepers or sorted(others, key=lambda thread: not user_frames(thread))
    if not keepers:
        return f"thread {names[0]} keeps the process alive" if names else "another thread keeps the process alive"
    which = ", ".join(locks.name_at(thread) for thread in keepers[:_SHOWN_THREADS])
    if len(keepers) == 1:
        return f"thread {which} keeps the process alive"
    if names:
        return f"threads {which} keep the process alive"
    return f"one of its other threads keeps the process alive ({which})"


# --- other threads -------------------------------------------------------------------------------------------------------


def _for_own_queue(waiter: Waiter) -> ThreadWait | None:
    """An entry of `queue.Queue`, which only threads of the process can add, if it is its only Python thread."""
    alone = len(observed.python_threads(waiter.process)) == 1
    if not alone or waiter.call != system_calls.FUTEX or _name_awaited(waiter.thread) != _EMPTY_QUEUE:
        return None
    hold = AtOwnQueue()
    return ThreadWait("waiting-data" if is_fetching(waiter.thread) else "waiting-lock", hold.what or "", hold)


def _for_threads(waiter: Waiter) -> ThreadWait | None:
    """Other threads of its process, if it is known what each of them waits for that may end the wait: those in the user's code or
    in a task of a pool. Of several, the one that may end first; also a thread that serves requests."""
    if waiter.call != system_calls.FUTEX:
        return None
    before = (*waiter.before, waiter.tid)
    waits: list[ThreadWait] = []
    for thread in observed.python_threads(waiter.process):
        if thread.tid is None or thread.tid in before:
            continue
        may_end = bool(user_frames(thread)) or _runs_a_task(thread)
        kernel = find_kernel_thread(waiter.process, thread.tid)
        wait = find_wait(waiter._replace(thread=thread, kernel=kernel, before=before)) if may_end else None
        if wait is None and isinstance(server := find_peer(waiter._replace(thread=thread, kernel=kernel)), Serves):
            wait = ThreadWait("waiting-io", str(server), server)
        if wait is not None and isinstance(wait.hold, Asleep | Elsewhere | Unreadable):
            return None
        if wait is not None:
            waits.append(wait._replace(hold=replace(wait.hold, thread=wait.hold.thread or thread)))
    if not waits:
        return None
    earliest = min(waits, key=_order_of_ends)
    if isinstance(earliest.hold, AtLock):
        return earliest
    return earliest._replace(why=f"waiting for a thread that is {earliest.why}")


def _runs_a_task(thread: PythonThread) -> bool:
    """Whether a thread of a pool runs what was submitted to it, which may be a library's function. Idle ones are in `_worker`."""
    return any(frame.function.endswith("run") and frame.file.endswith(_POOL) for frame in thread.frames)


def _order_of_ends(wait: ThreadWait) -> tuple[int, bool, float]:
    silent = wait.hold.silent_seconds if isinstance(wait.hold, OnNetwork) else None
    gravity = ("by-itself", "unknown", "never").index(wait.hold.ends)
    return gravity, not isinstance(wait.hold, Serves), silent if silent is not None else float("inf")


# --- requests ------------------------------------------------------------------------------------------------------------


def _for_task(waiter: Waiter) -> ThreadWait | None:
    """The next task of a framework that runs the rank as a worker."""
    top = waiter.top
    loop = next((loop for loop in TASK_LOOPS if top is not None and loop.function.is_at(top.file, top.function)), None)
    if loop is None:
        return None
    hold = GetsRequests(sender=loop.sender)
    return ThreadWait("waiting-io", str(hold), hold)


# --- the network ---------------------------------------------------------------------------------------------------------


def find_peer(waiter: Waiter) -> OnNetwork | Serves | None:
    """Where the socket that a thread waits on leads; None if it waits on none."""
    kernel = waiter.kernel
    sockets = [file for file in (kernel.files if kernel is not None else ()) if file.kind == "socket"]
    if (
        kernel is None
        or not sockets
        or waiter.call not in system_calls.NETWORK | system_calls.READ | system_calls.WRITE
    ):
        return None
    if (unix := find_unix_server(waiter)) is not None:
        return Serves(address=f"a Unix socket (fd {unix.descriptor})")
    holders = tuple(holder for file in sockets for holder in waiter.other_holders(file))
    by_inode = {connection.inode: connection for connection in waiter.connections if connection.inode is not None}
    waited = [by_inode[file.inode] for file in sockets if file.inode in by_inode]
    listening = next((connection for connection in waited if connection.state == "LISTEN"), None)
    if listening is not None:
        return Serves(address=f"{listening.local_address}:{listening.local_port}")
    peer = next((connection for connection in waited if connection.remote_port), None)
    if peer is None and not holders and (what := system_calls.awaited_from_outside(kernel)) is not None:
        changes = next(filter(system_calls.tells_of, kernel.files), None)
        address = _name_source(changes) if changes is not None else describe_file(sockets[0])
        return Serves(address=address, what=what)
    sends = waiter.call in system_calls.SEND
    if peer is None:
        return OnNetwork.ended_by(holders, sends=sends, serves=any(file.accepted for file in sockets))
    listening_at = {connection.local_port for connection in waiter.connections if connection.state == "LISTEN"}
    ages = [age / 1000 for age in (peer.last_sent_ms, peer.last_received_ms) if age is not None]
    return OnNetwork.ended_by(
        holders,
        peer=f"{peer.remote_address}:{peer.remote_port}",
        silent_seconds=min(ages, default=None),
        sends=sends or peer.send_queue_bytes > 0,
        serves=peer.local_port in listening_at,
    )


def may_serve_elsewhere(process: Process, thread: PythonThread) -> bool:
    """Whether another thread of a process than the given one may reply on its connections: one that is in the user's code or
    waits for data. Those of torch's backends and stores only serve torch, and a library's that sleeps or waits for a lock serves
    nobody."""
    own = tid_of(process, thread)
    others = [other for other in observed.python_threads(process) if other is not thread]
    in_program = any(user_frames(other) or _runs_a_task(other) for other in others)
    return in_program or any(
        _may_be_woken_by_others(kernel) for kernel in observed.threads(process) if kernel.tid != own
    )


def find_unix_server(waiter: Waiter) -> AwaitedFile | None:
    """The Unix socket at which a thread waits for connections; None for none. The thread by which Python's multiprocessing passes
    open files to other processes waits at one too, but nobody sends it work."""
    if any(frame.file.endswith(_PASSES_FILES) for frame in waiter.thread.frames):
        return None
    files = waiter.kernel.files if waiter.kernel is not None else ()
    return next((file for file in files if file.listens), None)


def _for_network(waiter: Waiter) -> ThreadWait | None:
    online, file = find_peer(waiter), waiter.file
    if online is None and waiter.call in system_calls.NETWORK and file is not None and file.kind == "pipe":
        return ThreadWait("waiting-io", f"waiting for data in {describe_file(file)}", waiter.unknown)
    if _wakes_itself(waiter):
        loop = InEventLoop()
        return ThreadWait("waiting-io", loop.what or "", loop)
    if online is None and waiter.call in system_calls.NETWORK:
        online = OnNetwork()
    children = {helper.pid for helper in waiter.helpers}
    if isinstance(online, OnNetwork) and any(
        holder.replies and holder.pid in children for holder in online.holders or ()
    ):
        # It asks a child process for the results of others, like the manager of a pool: any of them may give one.
        online = replace(online, period=_longest_sleep(waiter.helpers))
    return ThreadWait("waiting-io", str(online), online) if online is not None else None


def _wakes_itself(waiter: Waiter) -> bool:
    """Whether a thread waits in an event loop without a timer, and all that the loop watches are sockets of which only its own
    process has the other end: the pair by which threads wake the loop. Not if one of these threads may do so for somebody else
    (a server's, or one that waits for a child process)."""
    kernel = waiter.kernel
    if kernel is None or kernel.syscall not in system_calls.EPOLL or kernel.timed is not False:
        return False
    alone = (file.kind == "socket" and is_held_only_by(file, waiter.process.pid) for file in kernel.files)
    others = (thread for thread in observed.threads(waiter.process) if thread.tid != kernel.tid)
    children = any(helper.state not in "ZX" for helper in waiter.helpers)
    return (
        0 < len(kernel.files) < MOST_AWAITED_FILES
        and all(alone)
        and not children
        and not any(map(_may_be_woken_by_others, others))
    )


def _may_be_woken_by_others(thread: KernelThread) -> bool:
    """Whether a thread may wait for what another process does. Those of torch's backends and stores only serve torch."""
    of_torch = thread_names.is_of_library(thread.name) or thread.name.startswith(thread_names.STORE)
    if of_torch and not thread_names.is_of_rpc(thread.name):
        return False
    by_others = system_calls.NETWORK | system_calls.READ | system_calls.CHILD | system_calls.SIGNAL
    return thread.syscall is None or thread.syscall in by_others


def _for_events(waiter: Waiter) -> ThreadWait | None:
    """What any program may do, and of which the kernel tells."""
    what = system_calls.tells_of(waiter.file) if waiter.file is not None else None
    if waiter.file is None or what is None:
        return None
    hold = Serves(address=_name_source(waiter.file), what=what)
    return ThreadWait("waiting-io", str(hold), hold)


def _name_source(file: AwaitedFile) -> str:
    """`inotify (fd 7)`."""
    return f"{file.name.rpartition(':')[2].strip('[]')} (fd {file.descriptor})"


# --- by its name ---------------------------------------------------------------------------------------------------------


def _for_event(waiter: Waiter) -> ThreadWait | None:
    """A signal, a lock or an event of which only the name of the call or of Python's file is known."""
    own = user_frames(waiter.thread)
    by_file = waiter.call in system_calls.READ and waiter.file is not None and system_calls.brings_signals(waiter.file)
    if waiter.call in system_calls.SIGNAL or by_file:
        return ThreadWait("sleeping", "waiting for a signal", WaitsForSignal())
    file = waiter.top.file if waiter.top is not None else ""
    if any(name in file for name in _LOCK_FILES) or waiter.call == system_calls.FUTEX:
        source = (own[0].source if own else waiter.top.source if waiter.top is not None else None) or ""
        awaited, hold = _name_awaited(waiter.thread), waiter.unknown
        if awaited is not None and isinstance(hold, Elsewhere):
            return ThreadWait("waiting-lock", awaited, replace(hold, what=awaited))
        return ThreadWait("waiting-lock", f"waiting for a lock{f': {source}' if source else ''}", hold)
    if waiter.call in system_calls.READ and waiter.file is not None:
        what = f"reading {describe_file(waiter.file)}"
        return ThreadWait("sleeping", what, Elsewhere(what=what))
    return None


def _name_awaited(thread: PythonThread) -> str | None:
    """What a thread waits for, by the function of Python's library that it is in; None for any other."""
    for frame in reversed(list(takewhile(lambda frame: frame.library, thread.frames))):
        for file, function, in_line, awaited in _AWAITED:
            is_there = frame.file.endswith(file) and file_names.bare_name(frame.function) == function
            if is_there and in_line in (frame.source or ""):
                return awaited
    return None


_PROVIDERS = (
    _for_input,
    _for_files,
    _for_file_lock,
    _for_loader,
    _for_program_end,
    _for_stopped_child,
    _for_shared_lock,
    _for_lock,
    _for_time,
    _for_child,
    _for_events,
    _for_pipe,
    _for_own_queue,
    _for_threads,
    _for_own_loading,
    _for_iterator,
    _for_task,
    _for_network,
    _for_event,
)
"""The most specific evidence first: a file that the kernel names comes before a function that Python names."""
