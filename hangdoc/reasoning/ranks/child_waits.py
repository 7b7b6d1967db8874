"""Waits for child processes: their end, or their output. Providers of `thread_waits`."""

from typing import Literal, NamedTuple

from msgspec.structs import replace

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.evidence.stack import innermost, user_frames
from hangdoc.reasoning.model.holds import (
    Asleep,
    BlocksItsChild,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    OnNetwork,
    Unreadable,
)
from hangdoc.reasoning.ranks import sleeps
from hangdoc.reasoning.ranks.movement import find_kernel_thread, tid_of
from hangdoc.reasoning.ranks.network_waits import find_peer
from hangdoc.reasoning.ranks.waiter import (
    FULL_QUEUE,
    ThreadWait,
    Waiter,
    find_main_thread,
    name_awaited,
    passes_files,
    rests_inside,
    runs_a_task,
)
from hangdoc.snapshot import KernelThread, Process, PythonThread
from hangdoc.torch_facts import file_names

CHILD_FILES = (
    "/subprocess.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/process.py",
    "/concurrent/futures/",
)
"""Parts of the paths of the modules that wait for child processes."""
_FUTURES = "/concurrent/futures/_base.py"
_PROCESS_POOL = "/concurrent/futures/process.py"
_CHILD_WAITS = {
    "/subprocess.py": ("wait", "_wait", "communicate", "_communicate"),
    "/multiprocessing/popen_fork.py": ("wait", "poll"),
    "/multiprocessing/process.py": ("join",),
    file_names.SPAWN: ("join",),
    "/multiprocessing/pool.py": ("get", "wait", "next", "join"),
}
"""Functions of Python that wait for child processes."""
_OUTPUTS: dict[int | None, str] = {1: "standard output", 2: "standard error"}


def for_stopped_child(waiter: Waiter) -> ThreadWait | None:
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


def for_answering_child(waiter: Waiter) -> ThreadWait | None:
    """A child process at the other end of the only connection that a thread waits for, if that one is blocked by this process.
    Any other wait for it is one on the network."""
    file = waiter.file
    if file is None or file.kind != "socket" or waiter.kernel is None or waiter.kernel.timed is not False:
        return None
    held = {holder.pid for holder in waiter.other_holders(file)}
    child = next((helper for helper in waiter.helpers if {helper.pid} == held), None)
    blocked = _find_blocked(waiter, child) if child is not None and len(waiter.kernel.files) == 1 else None
    return _make_blocks_its_child(child, blocked, replies=True) if child is not None and blocked is not None else None


def _make_blocks_its_child(child: Process, blocked: "_Blocked", *, replies: bool) -> ThreadWait:
    why = f"waiting for its child process {child.pid} ({child.name}), which waits {blocked.until}"
    return ThreadWait("waiting-child", why, BlocksItsChild(pid=child.pid, at=blocked.at, replies=replies))


def for_child(waiter: Waiter) -> ThreadWait | None:
    """The end or the output of child processes. It ends as the waits of these end; if one of them waits until this process reads
    its output, neither continues, unless the process gives up after a time."""
    file = waiter.top.file if waiter.top is not None else ""
    writers = _find_awaited_children(waiter)
    by_end = waiter.call in system_calls.CHILD or any(name in file for name in CHILD_FILES)
    if not writers and not by_end:
        return None
    children = writers or [helper for helper in waiter.helpers if helper.ppid == waiter.process.pid]
    untimed = waiter.kernel is not None and waiter.kernel.timed is False
    # Any of them may end the wait, so none is to blame before all are blocked.
    blocked = {child.pid: _find_blocked(waiter, child) for child in children if child.state not in "ZX"}
    # One that waits for its next task may be idle; one whose output is full is not.
    in_order = sorted(children, key=lambda child: (found := blocked.get(child.pid)) is None or found.at == "input")
    for child in in_order if None not in blocked.values() else ():
        found = blocked.get(child.pid)
        if found is not None and (untimed or found.at == "output"):
            return _make_blocks_its_child(child, found, replies=not by_end)
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
    return ThreadWait("waiting-child", about, Elsewhere(period=sleeps.longest_sleep(waiter.helpers)))


def _is_at_lock_alone(child: Process) -> bool:
    """Whether the only thread of a process waits, without a timeout, for a lock in its own memory that its line takes: no thread
    can release it. A handler of signals may end any other wait, like that of an event."""
    threads, thread = observed.threads(child), find_main_thread(child)
    top = innermost(thread) if thread is not None else None
    if len(threads) != 1 or child.state in "ZX" or top is None:
        return False
    (only,) = threads
    takes_lock = (top.source or "").startswith("with ") or (top.library and ".acquire(" in (top.source or ""))
    in_futex = only.syscall == system_calls.FUTEX and only.timed is False and not only.files and only.cpu_ns == 0
    return in_futex and takes_lock and not top.file.endswith("/threading.py")  # its events wait by `acquire`, too


def _find_peer_of_child(waiter: Waiter, child: Process) -> OnNetwork | None:
    """What a child process waits for at a connection, if other processes are at its other end. Then so does who waits for it."""
    kernel, thread = find_kernel_thread(child, child.pid), find_main_thread(child)
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
    kernel, thread = find_kernel_thread(child, child.pid), find_main_thread(child)
    alone = len(waiter.helpers) == 1 and len(observed.python_threads(child)) == 1
    if not alone or thread is None or not sleeps.is_polling(child, thread, kernel):
        return None
    return replace(sleeps.describe_sleep(child, thread, kernel), of_child=child.pid)


def _find_awaited_children(waiter: Waiter) -> list[Process]:
    """The child processes at the other end of the pipes that a thread reads or polls; none where it waits for anything else."""
    files = waiter.kernel.files if waiter.kernel is not None else ()
    held = {holder.pid for file in files for holder in waiter.other_holders(file)}
    children = [helper for helper in waiter.helpers if helper.pid in held]
    polls = waiter.call in system_calls.NETWORK | system_calls.READ and all(file.kind == "pipe" for file in files)
    return children if polls and len(children) == len(held) else []


class _Blocked(NamedTuple):
    """What a child process waits for that only its parent can do."""

    until: str
    """It follows `which waits` in a sentence."""
    at: Literal["output", "input", "queue", "full-queue"]


def _find_blocked(waiter: Waiter, child: Process) -> _Blocked | None:
    """For what a child process waits, if at most the thread could do that. It has another pipe, which is full and not read, or
    empty and not written; or it is in `put` of a full queue. The other threads of both wait meanwhile, without a timeout."""
    threads = observed.threads(child)
    at_file = [thread for thread in threads if thread.files]
    if len(at_file) != 1 or not all(rests_inside(thread) for thread in threads if thread not in at_file):
        return None
    (kernel,) = at_file
    file = kernel.files[0]
    siblings = [each for each in waiter.helpers if each.ppid == child.ppid and each.state not in "ZX"]
    if waiter.call in system_calls.CHILD and siblings != [child]:
        return None  # it may wait for the end of another one, and end this wait then
    holders = {holder.pid for holder in file.holders or ()} - {child.pid}  # a child of os.fork has both ends
    awaited = {each.name for each in waiter.kernel.files} if waiter.kernel is not None else set()
    if not file.holders or file.name in awaited or not holders <= {waiter.process.pid} or _may_act_elsewhere(waiter):
        return None
    by = "this rank" if waiter.process.role == "rank" else f"its parent (pid {waiter.process.pid})"
    if file.kind == "pipe" and kernel.syscall in system_calls.WRITE:
        of_queue = kernel.tid != child.pid  # a thread of the child writes what was put there
        what = "queue" if of_queue else _OUTPUTS.get(file.descriptor, "output")
        reads = f"{by} reads its {what}" if holders else f"somebody reads its {what}, but no other process has it"
        return _Blocked(f"until {reads}", "queue" if of_queue else "output")
    if not holders or kernel.timed is not False or _has_run(kernel) or _has_run(waiter.kernel):
        return None  # what it waits for may have come
    if file.kind == "pipe" and kernel.syscall in system_calls.READ:
        what = "its standard input" if file.descriptor == 0 else f"a pipe (fd {file.descriptor})"
        return _Blocked(f"until {by} writes to {what} or closes it", "input")
    main = find_main_thread(child)
    if file.kind == "shared-memory" and main is not None and name_awaited(main) == FULL_QUEUE:
        return _Blocked(f"for room in a full queue that only {by} empties", "full-queue")
    return None


def _has_run(thread: KernelThread | None) -> bool:
    """Whether a thread ran in the window, or was ready to."""
    return thread is None or bool(thread.cpu_ns or thread.delayed_ns)


def _may_act_elsewhere(waiter: Waiter) -> bool:
    """Whether a Python thread of the process but the one that waits may do something. One of `multiprocessing` only passes on
    what others have given to it."""
    return any(
        user_frames(thread) or runs_a_task(thread) or not (passes_files(thread) or _rests_in(waiter.process, thread))
        for thread in observed.python_threads(waiter.process)
        if tid_of(waiter.process, thread) != waiter.tid
    )


def _rests_in(process: Process, thread: PythonThread) -> bool:
    kernel = find_kernel_thread(process, thread.tid)
    return kernel is not None and rests_inside(kernel)
