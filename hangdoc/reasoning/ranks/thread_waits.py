"""What a thread waits for, if that is not another rank: one edge of the wait graph beyond ranks.

A provider answers for one kind of wait, from what the kernel shows (system call, files) or from Python's own files in the
stack. The most specific evidence comes first. Who can end such a wait, and whether somebody will, is asked in `enders`.
"""

from itertools import takewhile
from typing import Literal

from msgspec.structs import replace

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import reading, user_frames
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtLock,
    AtOwnQueue,
    AtOwnTasks,
    AtSharedLock,
    Elsewhere,
    Ends,
    ForOthers,
    GetsRequests,
    OnNetwork,
    ProgramOver,
    Serves,
    Unreadable,
    WaitsForInput,
    WaitsForLoader,
    WaitsForSignal,
)
from hangdoc.reasoning.ranks import loader, locks, sleeps
from hangdoc.reasoning.ranks.child_waits import for_answering_child, for_child, for_stopped_child
from hangdoc.reasoning.ranks.file_waits import for_files, for_pipe
from hangdoc.reasoning.ranks.loader import is_fetching
from hangdoc.reasoning.ranks.movement import find_kernel_thread, has_asked_others, kernel_thread, tid_of
from hangdoc.reasoning.ranks.network_waits import find_peer, for_events, for_network
from hangdoc.reasoning.ranks.waiter import (
    EMPTY_QUEUE,
    FULL_QUEUE,
    OWN_QUEUE,
    TASK,
    ThreadWait,
    Waiter,
    describe_file,
    name_awaited,
    rests_inside,
    runs_a_task,
)
from hangdoc.regex import regex
from hangdoc.snapshot import IN_THE_WAY, AwaitedFile, Frame, Process, PythonThread
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.frameworks import TASK_LOOPS

_SHOWN_THREADS = 3
_LOCK_FILES = ("/threading.py", OWN_QUEUE, "/_weakrefset.py", "<frozen importlib._bootstrap>")
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/cmd.py", "/IPython/", "/ipdb/", "/debugpy/", "/pudb/")
_BREAKPOINT = regex(r"\b(breakpoint|set_trace|post_mortem)\(")
_OWN_TERMINAL = "/dev/tty"
"""From which a program reads a password (tty(4))."""


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
    if file.kind == IN_THE_WAY:  # it is not known whether that is a lock
        return None
    polls = file.kind == "lock" or sleeps.describe_sleep(waiter.process, waiter.thread, waiter.kernel).polls
    return file if polls else None


def _for_shared_lock(waiter: Waiter) -> ThreadWait | None:
    """A lock in memory that processes share. Another thread of the process may release it too."""
    file = waiter.file
    if file is None or file.kind != "shared-memory":
        return None
    alone = file.holders == () and locks.others_are_idle(waiter.process, {waiter.tid})
    full = name_awaited(waiter.thread) == FULL_QUEUE
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
    if lock is None:
        return None
    lock = _add_wait_of_holder(waiter, lock)
    return ThreadWait("waiting-lock", lock.what, lock)


def _add_wait_of_holder(waiter: Waiter, lock: AtLock) -> AtLock:
    """A lock with what the thread that has it waits for meanwhile, if that is another process: it is released when that wait
    ends, unless the thread is only inferred to have it."""
    before, holder = (*waiter.before, waiter.tid), lock.holder
    if holder is None or holder.tid is None or holder.tid in before:
        return lock
    kernel = find_kernel_thread(waiter.process, holder.tid)
    wait = find_wait(waiter._replace(thread=holder, kernel=kernel, before=before))
    hold = wait.hold
    if not isinstance(hold, ForOthers) or not (hold.holders or (isinstance(hold, OnNetwork) and hold.peer is not None)):
        return lock
    ends = "by-itself" if hold.ends == "by-itself" and not lock.inferred else lock.ends
    return replace(lock, what=f"{lock.what}, where it is {wait.why}", fault="outside", ends=ends)


# --- time ----------------------------------------------------------------------------------------------------------------


def _for_time(waiter: Waiter) -> ThreadWait | None:
    nap = sleeps.find_timed_wait(waiter.process, waiter.thread, waiter.kernel)
    by_timer = waiter.kernel is not None and waiter.kernel.sleep_seconds is not None
    if nap is None and (by_timer or waiter.call in system_calls.SLEEP or sleeps.is_between_sleeps(waiter.kernel)):
        nap = sleeps.describe_sleep(waiter.process, waiter.thread, waiter.kernel)
        if nap.polls and has_asked_others(waiter.connections):
            nap = replace(nap, ends="by-itself")  # they reply, and may say yes the next time
    return ThreadWait("sleeping", str(nap), nap) if nap is not None else None


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
        below = [helper for helper in waiter.helpers if helper.ppid == worker.pid]
        wait = find_wait(Waiter(worker, thread, kernel, below, waiter.connections))
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
    """An entry of `queue.Queue` or room in it, which only threads of the process can make, if it is its only Python thread."""
    alone = len(observed.python_threads(waiter.process)) == 1
    if not alone or waiter.call != system_calls.FUTEX or not any(map(_is_in_own_queue, waiter.thread.frames)):
        return None
    awaited = name_awaited(waiter.thread)
    if awaited not in (EMPTY_QUEUE, FULL_QUEUE):
        return None
    what = awaited.replace("waiting", "waiting, as the only Python thread,")
    hold = AtOwnQueue(what=what, at_full_queue=awaited == FULL_QUEUE)
    return ThreadWait("waiting-data" if is_fetching(waiter.thread) else "waiting-lock", hold.what or "", hold)


def _is_in_own_queue(frame: Frame) -> bool:
    return frame.library and frame.file.endswith(OWN_QUEUE)


def _for_own_tasks(waiter: Waiter) -> ThreadWait | None:
    """The result of a task, where all other Python threads of the process run tasks that wait for results too."""
    threads = observed.python_threads(waiter.process)
    others = [thread for thread in threads if tid_of(waiter.process, thread) != waiter.tid]
    if not others or len(others) != len(threads) - 1 or not all(map(runs_a_task, others)):
        return None
    kernels = (find_kernel_thread(waiter.process, thread.tid) for thread in others)
    at_rest = (kernel is not None and rests_inside(kernel) for kernel in (waiter.kernel, *kernels))
    if not all(at_rest) or any(name_awaited(thread) != TASK for thread in threads):
        return None
    what = TASK.replace("waiting", "waiting, like all its other Python threads,")
    hold = AtOwnTasks(what=what, threads=tuple(map(locks.name_at, others[:_SHOWN_THREADS])))
    return ThreadWait("waiting-lock", what, hold)


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
        may_end = bool(user_frames(thread)) or runs_a_task(thread)
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
        awaited, hold = name_awaited(waiter.thread), waiter.unknown
        if awaited is not None and isinstance(hold, Elsewhere):
            return ThreadWait("waiting-lock", awaited, replace(hold, what=awaited, at_full_queue=awaited == FULL_QUEUE))
        return ThreadWait("waiting-lock", f"waiting for a lock{f': {source}' if source else ''}", hold)
    if waiter.call in system_calls.READ and waiter.file is not None:
        what = f"reading {describe_file(waiter.file)}"
        return ThreadWait("sleeping", what, Elsewhere(what=what))
    return None


_PROVIDERS = (
    _for_task,
    _for_input,
    for_files,
    _for_file_lock,
    _for_loader,
    _for_program_end,
    for_stopped_child,
    _for_shared_lock,
    _for_lock,
    _for_time,
    for_child,
    for_answering_child,
    for_events,
    for_pipe,
    _for_own_queue,
    _for_own_tasks,
    _for_threads,
    _for_own_loading,
    _for_iterator,
    for_network,
    _for_event,
)
"""The most specific evidence first: a file that the kernel names comes before a function that Python names. Only a framework's
task loop comes before both: what its thread is woken for is the framework's own business, and the kernel shows another system
call at each look."""
