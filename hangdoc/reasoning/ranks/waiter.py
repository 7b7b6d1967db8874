"""A thread about which it is asked what it waits for, and the answer."""

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import NamedTuple

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.holds import Elsewhere, Hold, Unreadable
from hangdoc.reasoning.ranks import sleeps
from hangdoc.reasoning.ranks.movement import tid_of
from hangdoc.snapshot import AwaitedFile, Connection, Frame, Holder, KernelThread, Process, PythonThread
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.frameworks import TASK_RESULTS

FULL_QUEUE = "waiting for room in a full queue"
EMPTY_QUEUE = "waiting for an entry of an empty queue"
TASK = "waiting for the result of a task"
OWN_QUEUE = "/queue.py"
"""The queues of one process; those of several are in multiprocessing/queues.py."""
_PASSES_FILES = "/multiprocessing/resource_sharer.py"
"""Its thread passes open files to other processes."""
_AWAITED = (
    (OWN_QUEUE, "put", "not_full", FULL_QUEUE),
    ("/multiprocessing/queues.py", "put", "_sem", FULL_QUEUE),
    (OWN_QUEUE, "get", "not_empty", EMPTY_QUEUE),
    ("/threading.py", "join", "", "waiting for the end of a thread"),
    ("/multiprocessing/pool.py", "get", "", "waiting for the result of a pool's task"),
    ("/multiprocessing/pool.py", "next", "", "waiting for the result of a pool's task"),
    ("/concurrent/futures/_base.py", "result", "", TASK),
    ("/threading.py", "wait", "_cond.wait(", "waiting for an event that another thread sets"),
    ("/threading.py", "wait", "waiter.acquire(", "waiting for a condition that another thread notifies"),
    *((function.file, function.name, "", "waiting for the result of a Ray task") for function in TASK_RESULTS),
)
"""Functions of Python and Ray, and what stands in their lines where they wait for what. Of those that call each other, the
outer one tells more."""
_POOL = "/concurrent/futures/thread.py"
"""Its `_WorkItem.run` calls what was submitted."""


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


def rests_inside(thread: KernelThread) -> bool:
    """Whether only another thread of its process can wake a thread."""
    return thread.syscall == system_calls.FUTEX and thread.timed is False and not thread.files


def runs_a_task(thread: PythonThread) -> bool:
    """Whether a thread of a pool runs what was submitted to it, which may be a library's function. Idle ones are in `_worker`."""
    return any(frame.function.endswith("run") and frame.file.endswith(_POOL) for frame in thread.frames)


def passes_files(thread: PythonThread) -> bool:
    """Whether a thread is the one by which Python's multiprocessing passes open files to other processes."""
    return any(frame.file.endswith(_PASSES_FILES) for frame in thread.frames)


def name_awaited(thread: PythonThread) -> str | None:
    """What a thread waits for, by the function of Python's library or of Ray that it is in; None for any other."""
    for frame in reversed(list(takewhile(lambda frame: frame.library, thread.frames))):
        for file, function, in_line, awaited in _AWAITED:
            is_there = frame.file.endswith(file) and file_names.bare_name(frame.function) == function
            if is_there and in_line in (frame.source or ""):
                return awaited
    return None


def find_main_thread(process: Process) -> PythonThread | None:
    return next((each for each in observed.python_threads(process) if tid_of(process, each) == process.pid), None)


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
