"""The processes for which a thread waits outside of torch.distributed: at the other end of a connection or a pipe, with a lock,
or with shared memory. They may belong to another job, user or container, which is not observed."""

import msgspec

from hangdoc.observe.kernel import file_holders, shared_memory
from hangdoc.observe.outside import peers, processes_at_work, ray_tasks
from hangdoc.observe.stacks.python_stacks import is_started_to_train
from hangdoc.observe.torch.recorded_progress import has_pending
from hangdoc.procfs import ProcFS
from hangdoc.program import around, tests_files
from hangdoc.snapshot import (
    IN_THE_WAY,
    AwaitedFile,
    Clocks,
    FlightRecorder,
    Frame,
    Holder,
    KernelThread,
    PythonThread,
    RayTask,
    Stack,
    Unavailable,
)
from hangdoc.torch_facts import call_names, file_names
from hangdoc.torch_facts.frameworks import TASK_LOOPS

_OBSERVED = (file_names.DISTRIBUTED, file_names.DATA)
"""Threads in these files wait for ranks and for dataloader workers, which are observed."""
_SHARED_QUEUE = "/multiprocessing/queues.py"
_INHERITED = ("pipe", "shared-memory")
_IDLE = 0.1
"""Of a core."""
_REPLIES = 5
"""A second: the thread polls. Observers of a window wake it less often."""


def named(
    proc: ProcFS,
    pid: int,
    clocks: Clocks,
    stack: Stack,
    observed: frozenset[int],
    *,
    inherited: bool = True,
    since: float | None = None,
) -> Clocks:
    """The clocks of process `pid`, with the processes for which its Python threads wait, and whether they are at work.
    `observed`: the ranks and launchers of this look. `inherited`: also for pipes and shared memory. Launchers and helpers wait
    at those for ranks, which are observed: of these, only who can take from a full queue is read. `since`: when the main thread
    began to wait, by the clock of `Target.last_run`."""
    own = {thread.tid if thread.tid is not None else pid for thread in stack.threads if not _is_observed(thread)}
    in_put = {thread.tid if thread.tid is not None else pid for thread in stack.threads if _puts_into_queue(thread)}
    most = _REPLIES * max(1.0, clocks.window_seconds)

    def with_holders(thread: KernelThread) -> KernelThread:
        files = tuple(
            _with_holders(
                proc,
                pid,
                file,
                observed,
                replies=(thread.voluntary_switches or 0) > most,
                since=since if thread.tid == pid else None,
            )
            if file.kind == "file" or (thread.tid in own and (inherited or file.kind not in _INHERITED))
            else _with_takers(proc, pid, file)
            if thread.tid in in_put and file.kind == "shared-memory"
            else file
            for file in thread.files
        )
        return thread if files == thread.files else msgspec.structs.replace(thread, files=files)

    return msgspec.structs.replace(clocks, threads=tuple(map(with_holders, clocks.threads)))


def with_lock(proc: ProcFS, pid: int, file: AwaitedFile | None, observed: frozenset[int]) -> AwaitedFile | None:
    """A lock file for which a process polls, with whether the processes that hold the lock are at work."""
    if file is None:
        return None
    return msgspec.structs.replace(file, holders=processes_at_work.judged(proc, file.holders, pid, observed=observed))


def beside(
    proc: ProcFS,
    pid: int,
    clocks: Clocks,
    stack: Stack,
    observed: frozenset[int],
    polled: AwaitedFile | None = None,
    recorder: FlightRecorder | Unavailable | None = None,
) -> tuple[Holder, ...]:
    """The processes that may end the wait of rank `pid`, if it is idle and neither the thread that trains nor torch's record
    shows for which process it waits: those at work. A library may have threads of its own (ZeroMQ, gRPC), a child process may
    wait, and another process may make a file for which the rank looks. If none is at work: those of its job that sleep too if
    the rank sleeps, and else those that are connected with it and stopped. Another run that is younger than a path which is in
    the way did not make it, and does not remove it."""
    main = _find_training_thread(stack, pid)
    kernel = _find_kernel_thread(clocks, main, pid) if main is not None else None
    if main is None or kernel is None or kernel.state not in "SD" or _is_observed(main):
        return ()
    if _is_in_backward(main, stack, pid) and has_pending(recorder):
        return ()
    idle = sum(thread.cpu_ns for thread in clocks.threads) < _IDLE * 1e9 * clocks.window_seconds
    if not idle or any(file.kind == "file" or file.holders for file in kernel.files):
        return ()
    if kernel.sleep_seconds is None:
        return processes_at_work.connected(proc, pid, observed) or processes_at_work.stopped(proc, pid, observed)
    for_files = any(tests_files(loop) for frame in main.frames for loop in around(frame))
    gone = polled if polled is not None and polled.kind == IN_THE_WAY else None
    return processes_at_work.of_job(proc, pid, observed, for_files=for_files, gone=gone) or processes_at_work.asleep(
        proc, pid, observed, for_files=for_files, gone=gone
    )


def tasks_beside(
    proc: ProcFS, pid: int, stack: Stack, observed: frozenset[int], until: float | None
) -> tuple[RayTask, ...]:
    """The tasks of Ray that others execute while rank `pid` waits for one. `until`: as in `ray_tasks.read_tasks`."""
    main = _find_training_thread(stack, pid)
    in_loop = main is not None and any(
        loop.function.is_at(frame.file, frame.function) for frame in main.frames[:1] for loop in TASK_LOOPS
    )
    return ray_tasks.read_tasks(proc, pid, observed, until) if in_loop else ()


def sharing_memory(
    proc: ProcFS, pid: int, clocks: Clocks, stack: Stack, observed: frozenset[int]
) -> tuple[Holder, ...]:
    """The processes outside of the run that share memory with a rank whose training thread sleeps, or wakes often and may be
    between two sleeps: it may look for what they write there. Without its child processes."""
    main = _find_training_thread(stack, pid)
    kernel = _find_kernel_thread(clocks, main, pid) if main is not None else None
    if kernel is None or (
        kernel.sleep_seconds is None and (kernel.voluntary_switches or 0) <= _REPLIES * clocks.window_seconds
    ):
        return ()
    passed = observed | processes_at_work.descendants_of(proc, pid)
    holders = tuple(holder for holder in shared_memory.sharers_of(proc, pid) if holder.pid not in passed)
    return processes_at_work.judged(proc, holders, pid, processes_at_work.INHERITED, observed) or ()


def starting_beside(proc: ProcFS, pid: int, stack: Stack, observed: frozenset[int]) -> tuple[Holder, ...]:
    """The processes at work that may start what a rank or launcher waits for in a rendezvous."""
    main = _find_training_thread(stack, pid)
    if main is None or not any(_in_rendezvous(frame) for frame in main.frames):
        return ()
    return processes_at_work.starting(proc, pid, observed)


def _is_in_backward(main: PythonThread, stack: Stack, pid: int) -> bool:
    """Whether the main thread waits in autograd's engine, whose hooks make the calls of DDP, and no thread of that engine runs
    Python code: all others were started by Python."""
    others = (
        thread.frames[-1] for thread in stack.threads if thread is not main and thread.tid != pid and thread.frames
    )
    in_engine = any(file_names.BACKWARD.is_at(frame.file, frame.function) for frame in main.frames[:1])
    return in_engine and all(file_names.bare_name(frame.function) == "_bootstrap" for frame in others)


def _find_training_thread(stack: Stack, pid: int) -> PythonThread | None:
    """The thread in which a framework trains, or else the main thread of a process; None if its stack does not have it. The main
    thread of a worker of Ray Train only runs Ray's loop, and is in another system call at each look."""
    trains = next((thread for thread in stack.threads if thread.tid is not None and is_started_to_train(thread)), None)
    return trains or next((thread for thread in stack.threads if thread.tid in (None, pid)), None)


def _find_kernel_thread(clocks: Clocks, thread: PythonThread, pid: int) -> KernelThread | None:
    tid = thread.tid if thread.tid is not None else pid
    return next((each for each in clocks.threads if each.tid == tid), None)


def _in_rendezvous(frame: Frame) -> bool:
    return any(part in frame.file for part in file_names.RENDEZVOUS_FILES) or (
        file_names.DISTRIBUTED in frame.file and frame.function == call_names.INIT_PROCESS_GROUP
    )


def _is_observed(thread: PythonThread) -> bool:
    return any(part in frame.file for frame in thread.frames for part in _OBSERVED)


def _puts_into_queue(thread: PythonThread) -> bool:
    return any(
        frame.file.endswith(_SHARED_QUEUE) and file_names.bare_name(frame.function) == "put"
        for frame in thread.frames[:1]
    )


def _with_takers(proc: ProcFS, pid: int, file: AwaitedFile) -> AwaitedFile:
    """The processes that can take from the full queue at whose semaphore another one waits."""
    holders = shared_memory.holders_of(proc, pid, file.inode) if file.inode is not None else None
    return msgspec.structs.replace(file, holders=holders)


def _with_holders(
    proc: ProcFS, pid: int, file: AwaitedFile, observed: frozenset[int], *, replies: bool, since: float | None
) -> AwaitedFile:
    """`replies`: the waiting thread keeps being woken. `since`: when it began to wait."""
    holders: tuple[Holder, ...] | None = file.holders
    if file.kind == "socket" and file.inode is not None:
        if peers.listens(proc, file.inode, file_holders.period()):
            return msgspec.structs.replace(file, listens=True)
        near = processes_at_work.find_relatives(proc, observed)
        holders = (
            file_holders.read_holders(proc, peers.of_socket(proc, file.inode, file_holders.period(), near)) or None
        )
        if peers.is_accepted(proc, file.inode, file_holders.period()):
            file = msgspec.structs.replace(file, accepted=True)
    elif file.kind == "shared-memory" and file.inode is not None:
        holders = shared_memory.holders_of(proc, pid, file.inode)
    if holders is None or file.writes:
        return file
    asked = processes_at_work.INHERITED if file.kind in _INHERITED else processes_at_work.ASKED
    if replies and file.kind == "socket":
        asked = processes_at_work.POLLED
        holders = tuple(msgspec.structs.replace(holder, replies=True) for holder in holders)
    return msgspec.structs.replace(file, holders=processes_at_work.judged(proc, holders, pid, asked, observed, since))
