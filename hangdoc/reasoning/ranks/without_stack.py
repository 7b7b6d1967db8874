"""What a rank does whose stack could not be read: by its clocks, by the system call of its main thread, and by torch's record.

A thread in the kernel may be in a call of torch.distributed, in which other ranks can end its wait. Gloo waits for a collective
at a futex without a timeout, and records the call. It waits for a send or a receive at a futex with a timeout, and records
none. A store is asked through a socket. Everything else ends as the same wait of a thread with a stack does.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.diagnosis import Operation
from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.records import recorded_groups, shortest_timeout
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtSharedLock,
    ChildStopped,
    Hold,
    InFile,
    ProgramOver,
    ReadsPipe,
    Unread,
    Unreadable,
    WaitsForInput,
)
from hangdoc.reasoning.model.rank import Wait
from hangdoc.reasoning.ranks import movement
from hangdoc.reasoning.ranks.enders import may_have_been_woken, with_end
from hangdoc.reasoning.ranks.thread_waits import find_wait
from hangdoc.reasoning.ranks.waiter import Surroundings, ThreadWait, Waiter
from hangdoc.snapshot import Connection, KernelThread, Process, PythonThread
from hangdoc.torch_facts import thread_names

_SHOWN_BY_KERNEL = (AtFileLock, AtSharedLock, ChildStopped, InFile, ReadsPipe, WaitsForInput)
"""Waits that the kernel alone shows, and that no call of torch.distributed makes."""
_DOUBTED = (InFile, ReadsPipe, AtSharedLock)
_FOR_CHILD = "waiting for the end of a child process"
_IN_PROCESS = "waiting for a lock, a queue or a thread of its own (in a futex)"


class Rest(NamedTuple):
    """What a rank that does nothing waits for."""

    state: str
    why: str
    hold: Hold | None = None
    wait: Wait | None = None


def find_rest(process: Process, kernel: KernelThread, around: Surroundings) -> Rest | None:
    """What a rank waits for whose stack could not be read; None if it does anything: it used a processor or woke up in the
    window, or another thread or process of it works. `kernel` is its main thread."""
    helpers = around.helpers
    if (why := observed.why_stack_is_missing(process)) is None:
        return None
    if not movement.rests(process, kernel) or movement.children_at_work(process, helpers):
        return None
    if movement.describe_moved_bytes(process, helpers, around.others) is not None:
        return None
    unread = f"its stack could not be read: {why}"
    if _asks_store(kernel, around.stores) and _is_between_calls(process):
        wait = Wait("store", Operation(op="wait", origin="store"), sure=False)
        return Rest("in-store", f"its main thread waits at a socket to a store; {unread}", wait=wait)
    thread = PythonThread(tid=process.pid, name=None, active=False, owns_gil=False)
    connections = (*around.pairs, *around.others)
    found = _find_own_wait(Waiter(process, thread, kernel, helpers, connections, engine=around.engine))
    if found is None:
        return Rest("unknown", f"{_describe_rest(process, kernel)}; {unread}", Unreadable())
    return Rest(found.state, unread, found.hold)


def _asks_store(kernel: KernelThread, stores: Sequence[Connection]) -> bool:
    """Whether a thread waits for the answer of a store."""
    inodes = {connection.inode for connection in stores if connection.inode is not None}
    return kernel.syscall in system_calls.NETWORK and any(file.inode in inodes for file in kernel.files)


def _find_own_wait(waiter: Waiter) -> ThreadWait | None:
    """What a rank waits for, if it is in no call of torch.distributed; None if it may be in one, or if it may continue soon."""
    process, kernel = waiter.process, waiter.kernel
    if kernel is None or not waiter.call:
        return None
    wait = find_wait(waiter)
    if isinstance(wait.hold, _SHOWN_BY_KERNEL):
        return _doubted(with_end(waiter, wait))
    if isinstance(wait.hold, Asleep):  # what it does after a shorter sleep is not known
        left = wait.hold.seconds
        return wait if left is not None and left > shortest_timeout(process) else None
    if waiter.call in system_calls.CHILD:
        hold = Unread(what=_FOR_CHILD, ends=wait.hold.ends, period=wait.hold.period)
        return with_end(waiter, ThreadWait("waiting-child", _FOR_CHILD, hold))
    if kernel.syscall != system_calls.FUTEX or kernel.timed is not False or not _is_between_calls(process):
        return None
    if any(_may_continue(process, thread) for thread in observed.threads(process)):
        return None
    if keepers := observed.keeps_alive(process):
        over = f"at the end of its program: its main thread is over, and thread {keepers[0]} keeps the process alive"
        return with_end(waiter, ThreadWait("waiting-lock", over, ProgramOver(what=over)))
    if any(map(_is_asked, observed.threads(process))):
        return None
    return with_end(waiter, ThreadWait("waiting-lock", _IN_PROCESS, Unread(what=_IN_PROCESS)))


def _doubted(wait: ThreadWait) -> ThreadWait:
    """A wait for a file. That only its own process has the other end does not prove that it never ends: the stacks of the other
    threads are missing."""
    hold = wait.hold
    return (
        wait._replace(hold=replace(hold, ends="unknown"))
        if isinstance(hold, _DOUBTED) and hold.ends == "never"
        else wait
    )


def _is_between_calls(process: Process) -> bool:
    """Whether torch's record shows that a rank has finished all calls that it made; no record has calls of RPC."""
    groups = recorded_groups(process)
    pending = any(group.pending or any(each.pending for each in group.transfers) for group in groups)
    return bool(groups) and not pending and not observed.uses_rpc(process)


def _may_continue(process: Process, thread: KernelThread) -> bool:
    """Whether a thread sleeps, and continues before the other ranks give up."""
    return thread.syscall in system_calls.SLEEP and (thread.sleep_seconds or 0.0) <= shortest_timeout(process)


def _is_asked(thread: KernelThread) -> bool:
    """Whether a thread waits for data from outside, as a server does: then the main thread may wait for the next request. The
    threads of NCCL that have no name of their own look the same."""
    own = not thread_names.is_of_library(thread.name) and not thread_names.is_transport(thread.name)
    return own and any(file.kind in ("socket", "pipe") for file in thread.files)


def _describe_rest(process: Process, kernel: KernelThread) -> str:
    """For how long a thread has not run, or at least if an observer may have woken it, and where it is in the kernel."""
    idle, where = kernel.idle_seconds, kernel.syscall or kernel.wchan
    place = f" (in the kernel: {where})" if where else ""
    if idle is None or idle < 1.0:
        return f"it uses no CPU{place}"
    older = "; it may have waited for longer: an observer may have made it run then"
    return f"it has not run for {duration(idle)}{place}{older * may_have_been_woken(process, kernel)}"
