"""What made progress during the observation: the training thread, and the other work of a rank's process tree.

Others may work for a rank: a library that writes files, a child process that uploads, a pool. A process tree that transfers bytes
or uses CPU anywhere is busy.
"""

from collections.abc import Iterable, Sequence

from hangdoc.parse import was_removed
from hangdoc.phrases import duration, volume
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import Reading, lines_of, user_frames
from hangdoc.reasoning.model.rank import BUSY
from hangdoc.snapshot import (
    Clocks,
    Connection,
    FileBytes,
    FileProgress,
    FlightRecorder,
    KernelThread,
    Process,
    PythonThread,
    Stack,
)
from hangdoc.torch_facts import nccl, thread_names

_STORED_BYTES = 256 * 1024
_TRANSFERRED_BYTES = 4096
_POLLED_BYTES = 1 << 16
_FILE_BYTES = 16 * 1024
"""Who says in a log that it still waits writes less, also while a child does what it waits for."""
_PAUSE_NS = 1_000_000
_WAKES_BY_OBSERVERS = 4
"""What a thread uses at most that an observer stops and continues."""
_WAKES_OF_A_PAUSE = 2
"""By so many wakes two threads may differ that are read one after the other while an observer pauses them."""
CHILDREN_BUSY = "its child processes are busy"
_SHOWN_CHILDREN = 2
_LATELY, _SLEEPS = 10.0, 2
"""Seconds, or sleeps of a process, since it last got on in a file."""
_SOME = 0.03
"""Share of one core."""
_READY, _DELAYED = 0.8, 0.5
"""A thread that is ready to run for this share of the window computes; one that waits for so much of it is kept from that."""


def describe_moved_bytes(
    process: Process, helpers: Iterable[Process], others: Iterable[Connection], *, polls: bool = False
) -> str | None:
    """What a rank and its helpers read, wrote or transferred in the window, in words; `others` are their connections to the
    world. None for less than a few pages or packets. `polls`: its thread sleeps between two questions to others, and transfers
    those and the replies anyway."""
    tree = [member.files for member in (process, *helpers) if isinstance(member.files, FileBytes)]
    for verb, amount in (("wrote", sum(f.written_bytes for f in tree)), ("read", sum(f.read_bytes for f in tree))):
        if amount >= _STORED_BYTES:
            return f"it {verb} {volume(amount)}"
    if (read := describe_read_file([process])) is not None:
        return f"it {read}"
    if (written := _find_written(process, _POLLED_BYTES if polls else _FILE_BYTES)) is not None:
        return f"it wrote {volume(written.bytes)} of {written.path}"
    amount = _count_bytes(others)
    least = _POLLED_BYTES if polls else _TRANSFERRED_BYTES
    return f"it transferred {volume(amount)} on connections outside the run" if amount >= least else None


def describe_read_file(processes: Iterable[Process]) -> str | None:
    """The file in which one of some processes got on reading, in words: `read 66 kB of /data/a.bin`. None for none."""
    read = next((file for process in processes for file in _list_progress(process) if not file.writes), None)
    if read is None:
        return None
    ago = f", {duration(read.seconds_ago)} ago" if read.seconds_ago else ""
    return f"read {volume(read.bytes)} of {read.path}{ago}"


def _find_written(process: Process, least: int) -> FileProgress | None:
    """A file in which a process got on writing, by so many bytes at least: more than lines of a log. Not while its main thread
    did not run: then another one writes, such as one that dumps stacks."""
    main, clocks = find_kernel_thread(process, process.pid), process.clocks
    if main is None or not isinstance(clocks, Clocks):
        return None
    ran = bool(main.voluntary_switches or main.involuntary_switches or main.cpu_ns)
    since = 0.0 if ran else main.idle_seconds
    return next(
        (
            file
            for file in _list_progress(process)
            if file.writes
            and file.bytes >= least
            and since is not None
            and since <= (file.seconds_ago and file.seconds_ago + clocks.window_seconds)
        ),
        None,
    )


def _list_progress(process: Process) -> list[FileProgress]:
    """The files in which a process got on, not longer ago than two of its sleeps take."""
    if not isinstance(process.files, FileBytes):
        return []
    kernel = find_kernel_thread(process, process.pid)
    sleep = (kernel.whole_sleep_seconds if kernel is not None else None) or 0.0
    return [file for file in process.files.progress if file.seconds_ago <= max(_LATELY, _SLEEPS * sleep)]


def has_read_files(process: Process) -> bool:
    """Whether a process read anything from storage in the window, or got on reading a file."""
    read = isinstance(process.files, FileBytes) and process.files.read_bytes > 0
    return read or not all(file.writes for file in _list_progress(process))


def has_asked_others(connections: Iterable[Connection]) -> bool:
    """Whether a process that polls exchanged more than heartbeats with others in the window."""
    return _count_bytes(connections) >= _TRANSFERRED_BYTES


def _count_bytes(connections: Iterable[Connection]) -> int:
    return sum(connection.bytes_moved or 0 for connection in connections if connection.state == "ESTABLISHED")


def own_counts(process: Process) -> str | None:
    """What a rank itself counted in the window, in words: calls in torch's record. None if nothing."""
    record = process.recorder
    if isinstance(record, FlightRecorder) and (made := record.made_in_window):
        return f"it made {made} collective call{'s' * (made != 1)}, by torch's record"
    return None


def counted_before(process: Process) -> str | None:
    """What is known of a rank that made calls until a poll shortly before, and was not read twice since, in words. Like an old
    stack, it says that the rank has moved. None for any other."""
    if process.counted_seconds_ago is None:
        return None
    return f"it made calls until {duration(process.counted_seconds_ago)} ago, and has run since"


def kernel_thread(process: Process, thread: PythonThread | None) -> KernelThread | None:
    """The kernel's thread behind a Python thread; the main thread for none, and for one that was not seen."""
    own = own_kernel_thread(process, thread) if thread is not None else None
    return own or find_kernel_thread(process, process.pid)


def own_kernel_thread(process: Process, thread: PythonThread) -> KernelThread | None:
    """The kernel's thread behind a Python thread; None for one that was not seen."""
    return find_kernel_thread(process, tid_of(process, thread))


def tid_of(process: Process, thread: PythonThread) -> int:
    """The kernel's number of a Python thread. One without a number is the main thread."""
    return thread.tid if thread.tid is not None else process.pid


def find_kernel_thread(process: Process, tid: int | None) -> KernelThread | None:
    """A kernel thread by its number; None for one that was not seen."""
    return next((thread for thread in observed.threads(process) if thread.tid == tid), None)


def has_transferred(process: Process, connections: Iterable[Connection]) -> bool:
    """Whether any of its connections transferred data in the window. The processes of NCCL keep in touch all the time."""
    least = nccl.KEEPS_ALIVE_BYTES if observed.uses_nccl(process) else 0
    return any((connection.bytes_moved or 0) > least for connection in connections)


def share_of(process: Process, kernel: KernelThread | None) -> float | None:
    """CPU of a thread over the window as a share of one core; None if it could not be measured."""
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0 or kernel is None:
        return None
    return kernel.cpu_ns / 1e9 / process.clocks.window_seconds


def cpu_percent(process: Process) -> float | None:
    """CPU of all threads over the window, in percent of one core; None if it could not be measured."""
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0:
        return None
    return round(sum([t.cpu_ns for t in process.clocks.threads]) / 1e7 / process.clocks.window_seconds, 1)


def cores_used(process: Process, *, transport: bool = True) -> float:
    """CPU of all threads over the window as a share of one core, or only of those that do not merely carry messages; 0 where it
    could not be measured."""
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0:
        return 0.0
    work = sum(t.cpu_ns for t in process.clocks.threads if transport or not thread_names.is_transport(t.name))
    return work / 1e9 / process.clocks.window_seconds


def describe_delay(process: Process, kernel: KernelThread | None) -> str | None:
    """How a thread works that gets no core, in words: it was ready to run for nearly the whole window, and still is. None for any
    other. One that asks for something again and again waits for a core as well, but it sleeps each time."""
    if kernel is None or kernel.delayed_ns is None or not isinstance(process.clocks, Clocks):
        return None
    window, most = process.clocks.window_seconds, _WAKES_BY_OBSERVERS * max(1.0, process.clocks.window_seconds)
    used, waited = kernel.cpu_ns / 1e9, min(kernel.delayed_ns / 1e9, window)
    ready = (
        kernel.state == "R"
        and window > 0
        and used + waited >= _READY * window
        and (kernel.voluntary_switches or 0) <= most
    )
    if not ready or waited < _DELAYED * window:
        return None
    return f"it is ready to run, had a core for {used / window:.0%} of the time, and waited for one"


def share_without_core(process: Process, kernel: KernelThread | None) -> float | None:
    """The share of the window for which a thread was ready to run and waited for a core; None if the kernel did not count it."""
    if kernel is None or kernel.delayed_ns is None or not isinstance(process.clocks, Clocks):
        return None
    window = process.clocks.window_seconds
    return min(kernel.delayed_ns / 1e9, window) / window if window > 0 else None


def keeps_waking(process: Process, kernel: KernelThread | None) -> bool:
    """Whether a waiting thread keeps being woken: it goes from one operation to the next, at the same line. A look by
    py-spy wakes it a few times."""
    if kernel is None or kernel.voluntary_switches is None or not isinstance(process.clocks, Clocks):
        return False
    return kernel.voluntary_switches > 30 * max(1.0, process.clocks.window_seconds)


def rests(process: Process, kernel: KernelThread) -> bool:
    """Whether a thread did nothing in the window, and no other thread of its process worked: it was at most woken by an
    observer."""
    return rests_itself(kernel) and isinstance(process.clocks, Clocks) and cores_used(process, transport=False) < BUSY


def rests_itself(kernel: KernelThread) -> bool:
    """Whether a thread did nothing in the window: it was at most woken by an observer."""
    quiet = kernel.cpu_ns < _PAUSE_NS and (kernel.voluntary_switches or 0) <= _WAKES_BY_OBSERVERS
    return quiet and kernel.state != "R"


def serves_requests(process: Process) -> bool:
    """Whether its RPC pool is woken more often than its main thread, which waits: by requests of other ranks. An observer wakes
    all threads alike; one that is read while it does may have a wake less."""
    main = find_kernel_thread(process, process.pid)
    by_observers = (main.voluntary_switches or 0) + _WAKES_OF_A_PAUSE if main is not None else _WAKES_BY_OBSERVERS
    pool = (thread for thread in observed.threads(process) if thread.name == thread_names.RPC_POOL)
    return any((thread.voluntary_switches or 0) > by_observers for thread in pool)


def is_at_same_lines(process: Process, thread: PythonThread, read: Reading) -> bool:
    """Whether the thread stood at the same lines at both looks; True where one look is missing."""
    if not isinstance(process.stack_before, Stack):
        return True
    tid, name = thread.tid, thread.name
    for before in process.stack_before.threads:
        if before is thread:  # a bundle holds equal stacks once
            return True
        if before.tid == tid or (before.tid is None and before.name == name):
            return lines_of(before) == read.lines
    return not read.handles_rpc  # else it is a thread of a pool that had nothing to do then


def children_transfer(helpers: Sequence[Process]) -> bool:
    """Whether a helper process reads or writes files at all. It counts only for a rank that waits for its child process."""
    files = [helper.files for helper in helpers if isinstance(helper.files, FileBytes)]
    amounts = (each.read_bytes + each.written_bytes for each in files)
    return any(map(_list_progress, helpers)) or any(amount >= _FILE_BYTES for amount in amounts)


def children_at_work(process: Process, helpers: Sequence[Process]) -> bool:
    """Whether the helper processes of a rank use a processor: one of them, or many that end after a short time."""
    return any(map(_is_busy, helpers)) or any(map(_waits_for_busy, (process, *helpers)))


def describe_children(helpers: Sequence[Process]) -> str:
    """The busiest child processes of a rank that still run: `its child process 7 (cc1plus) is busy`."""
    busy = sorted(filter(_is_busy, helpers), key=lambda helper: -cores_used(helper))
    names = [f"{each.pid}{'' if was_removed(each.name) else f' ({each.name})'}" for each in busy[:_SHOWN_CHILDREN]]
    names += [f"{len(busy) - _SHOWN_CHILDREN} more"] * (len(busy) > _SHOWN_CHILDREN)
    if len(names) == 1:
        return f"its child process {names[0]} is busy"
    return f"its child processes {', '.join(names)} are busy" if names else CHILDREN_BUSY


def _is_busy(process: Process) -> bool:
    threads = observed.threads(process)
    return cores_used(process) >= BUSY or any(
        describe_delay(process, each) is not None or _works_slowly(process, each) for each in threads
    )


def _works_slowly(process: Process, kernel: KernelThread) -> bool:
    """Whether a worker of a loader gets little of a core and uses all of it: on a full host, not each look counts how long it
    waited. Any other child that spins so may have nothing to do with what its rank waits for."""
    if process.name != thread_names.DATALOADER_WORKER:
        return False
    share = share_of(process, kernel)
    return kernel.state == "R" and share is not None and share >= _SOME and not may_have_slept(process, kernel)


def may_have_slept(process: Process, kernel: KernelThread) -> bool:
    """Whether a thread has waited for something in the window, or that was not counted. An observer stops it a few times."""
    window = process.clocks.window_seconds if isinstance(process.clocks, Clocks) else 0.0
    switches = kernel.voluntary_switches
    return switches is None or switches > _WAKES_BY_OBSERVERS * max(1.0, window)


def _waits_for_busy(process: Process) -> bool:
    clocks = process.clocks
    return isinstance(clocks, Clocks) and clocks.children_cpu_ns / 1e9 >= BUSY * max(clocks.window_seconds, 0.1)


def has_other_user_thread_run(process: Process, thread: PythonThread) -> bool:
    """Whether another thread of a process that is in the user's code ran in the window."""
    others = (other for other in observed.python_threads(process) if other is not thread and user_frames(other))
    kernels = (own_kernel_thread(process, other) for other in others)
    return any(kernel is not None and not rests_itself(kernel) for kernel in kernels)


def threads_at_work(process: Process, thread: PythonThread) -> bool:
    """Whether the other threads of a process, but those that merely carry messages, use a processor."""
    own = own_kernel_thread(process, thread)
    return cores_used(process, transport=False) - (share_of(process, own) or 0.0) >= BUSY
