"""The wait graph beyond ranks: what a thread waits for, through other threads and child processes, and whether that ends."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.reasoning.model.holds import (
    Asleep,
    AtLock,
    AtOwnQueue,
    AtOwnTasks,
    AtSharedLock,
    BlocksItsChild,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    EngineStopped,
    GetsRequests,
    Hold,
    InEventLoop,
    InFile,
    OnNetwork,
    ReadsPipe,
    Serves,
    WaitsForInput,
)
from hangdoc.reasoning.ranks import loader
from hangdoc.reasoning.ranks.enders import find_engine, with_end
from hangdoc.reasoning.ranks.thread_waits import find_wait
from hangdoc.reasoning.ranks.waiter import Engine, ThreadWait, Waiter
from hangdoc.snapshot import (
    AwaitedFile,
    Clocks,
    Connection,
    Frame,
    Holder,
    KernelState,
    KernelThread,
    Loop,
    Process,
    PythonThread,
    Stack,
)
from tests.unit.builders import frame, local, rank

MAIN, LOADER, WRITER = 100, 101, 102
GET = (frame("Queue.get", 171, "/usr/lib/python3.11/queue.py", library=True), frame("train", 12))


def kernel(tid: int, syscall: str, *files: AwaitedFile, **more: Any) -> KernelThread:
    values: dict[str, Any] = {"state": "S", "cpu_ns": 0, "voluntary_switches": 0, "involuntary_switches": 0, **more}
    return KernelThread(tid=tid, name="python3", syscall=syscall, files=files, **values)


def python(tid: int, *frames: Frame) -> PythonThread:
    return PythonThread(tid=tid, name=f"thread-{tid}", active=False, owns_gil=False, frames=frames)


def process(*threads: tuple[KernelThread, tuple[Frame, ...]], **more: Any) -> Process:
    """A rank with these threads, the main one first."""
    seen = Stack(at_seconds=0.0, threads=tuple(python(one.tid, *frames) for one, frames in threads))
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=tuple(one for one, _ in threads))
    return rank(0, stack=seen, stack_before=seen, clocks=clocks, **more)


def wait_of(owner: Process, *helpers: Process, connections: tuple[Connection, ...] = ()) -> ThreadWait:
    """What its main thread waits for, with what ends that."""
    assert isinstance(owner.stack, Stack) and isinstance(owner.clocks, Clocks)
    waiter = Waiter(owner, owner.stack.threads[0], owner.clocks.threads[0], helpers, connections)
    return with_end(waiter, find_wait(waiter))


def child(pid: int, thread: KernelThread, *frames: Frame) -> Process:
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(thread,))
    seen = Stack(at_seconds=0.0, threads=(python(pid, *frames),) if frames else ())
    return rank(0, pid=pid, ppid=MAIN, role="helper", name="sim", clocks=clocks, stack=seen, stack_before=seen)


def pipe(number: int, *holders: int, writes: bool = False, descriptor: int = 7) -> AwaitedFile:
    held = tuple(Holder(pid=pid, name="python3", state="S") for pid in holders)
    return AwaitedFile(kind="pipe", name=f"pipe:[{number}]", descriptor=descriptor, writes=writes, holders=held)


ON_NFS = AwaitedFile(kind="path", name="/data/shard.bin", mount="nfs4 (server:/data)")


def test_a_wait_for_a_thread_is_what_that_thread_waits_for() -> None:
    owner = process((kernel(MAIN, "futex"), GET), (kernel(LOADER, "openat", ON_NFS), (frame("read_shard", 40),)))
    found = wait_of(owner)
    assert isinstance(found.hold, InFile) and found.hold.file == ON_NFS
    assert found.why.startswith("waiting for a thread that is in a file system call (/data/shard.bin")


@pytest.mark.parametrize("another", [True, False])
def test_the_gil_keeps_nobody_from_a_fifo_if_no_other_thread_would_open_it(another: bool) -> None:
    """`torch.save` opens a path in C++ and keeps the GIL."""
    fifo = AwaitedFile(kind="path", name="/out/checkpoint.pt")
    threads = [(kernel(MAIN, "openat", fifo, wchan="wait_for_partner"), (frame("save", 32),))]
    if another:
        threads.append((kernel(LOADER, "futex"), (frame("reads_it", 40),)))
    owner = process(*threads)
    assert isinstance(owner.stack, Stack)
    main, *others = owner.stack.threads
    seen = Stack(at_seconds=0.0, threads=(replace(main, owns_gil=True), *others))
    found = wait_of(replace(owner, stack=seen, stack_before=seen))
    assert isinstance(found.hold, AtLock if another else InFile)
    assert another or found.hold.ends == "unknown"  # any process may still open the other end


def test_through_two_threads() -> None:
    chain = (
        (kernel(MAIN, "futex"), GET),
        (kernel(LOADER, "futex"), (*GET[:1], frame("decode", 30))),
        (kernel(WRITER, "openat", ON_NFS), (frame("read_shard", 40),)),
    )
    assert isinstance(wait_of(process(*chain)).hold, InFile)


def test_threads_that_wait_for_each_other_end_the_search() -> None:
    """At queues nothing shows who should fill which: two threads at queues are no proof of a deadlock."""
    owner = process((kernel(MAIN, "futex"), GET), (kernel(LOADER, "futex"), (*GET[:1], frame("decode", 30))))
    assert isinstance(wait_of(owner).hold, Elsewhere)


def test_another_thread_whose_wait_is_not_known_may_end_it() -> None:
    owner = process(
        (kernel(MAIN, "futex"), GET),
        (kernel(LOADER, "openat", ON_NFS), (frame("read_shard", 40),)),
        (kernel(WRITER, "rt_sigsuspend"), (frame("wait_for_signal", 50),)),
    )
    assert isinstance(wait_of(owner).hold, Elsewhere)


@pytest.mark.parametrize(("wakes", "ends"), [(0, "unknown"), (9, "by-itself")])
def test_a_write_to_a_pipe_that_somebody_reads_ends(wakes: int, ends: str) -> None:
    full = pipe(5, 900, writes=True)
    writer = kernel(LOADER, "write", full, wchan="anon_pipe_write", voluntary_switches=wakes)
    hold = wait_of(process((kernel(MAIN, "futex"), GET), (writer, (frame("save", 40),)))).hold
    assert isinstance(hold, InFile) and hold.ends == ends


@pytest.mark.parametrize(("states", "ends"), [("T", "never"), ("S", "unknown"), ("TS", "unknown"), ("t", "unknown")])
def test_a_write_to_a_pipe_whose_readers_a_signal_has_stopped_never_ends(states: str, ends: str) -> None:
    readers = tuple(Holder(pid=900 + at, name="tee", state=state) for at, state in enumerate(states))
    full = AwaitedFile(kind="pipe", name="pipe:[5]", inode=5, holders=readers)
    hold = wait_of(process((kernel(MAIN, "write", full, wchan="anon_pipe_write"), (frame("save", 40),)))).hold
    assert isinstance(hold, InFile) and hold.ends == ends
    fifo = replace(full, name="/data/log.fifo")  # another process may open it
    hold = wait_of(process((kernel(MAIN, "write", fifo, wchan="anon_pipe_write"), (frame("save", 40),)))).hold
    assert hold.ends == "unknown"


def test_the_wait_of_another_thread_says_where_that_is() -> None:
    writer = kernel(LOADER, "write", pipe(5, 900, writes=True), wchan="anon_pipe_write")
    hold = wait_of(process((kernel(MAIN, "futex"), GET), (writer, (frame("save", 40),)))).hold
    assert hold.thread is not None and hold.thread.tid == LOADER


@pytest.mark.parametrize(
    ("readers", "busy", "timed", "why"),
    [
        ((200,), False, False, "which waits until somebody reads its queue, but no other process has it"),
        ((200, MAIN), False, False, "which waits until this rank reads its queue"),
        ((200, MAIN), False, True, None),
        ((200, 900), False, False, None),
        ((200,), True, False, None),
    ],
)
def test_a_child_cannot_end_while_its_queue_is_full(
    readers: tuple[int, ...], busy: bool, timed: bool, why: str | None
) -> None:
    """The thread of the queue writes, and the main thread waits for its end. After os.fork, the child has both ends."""
    holders = tuple(Holder(pid=pid, name="python3", state="S") for pid in readers)
    full = AwaitedFile(kind="pipe", name="pipe:[7]", inode=7, descriptor=10, writes=True, holders=holders)
    main = kernel(200, "futex", timed=busy)
    threads = (main, kernel(201, "write", full, wchan="anon_pipe_write"))
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=threads)
    exits = frame("_exit_function", 357, "/multiprocessing/util.py")
    call = kernel(MAIN, "poll" if timed else "wait4", timed=timed)  # as Process.join does it
    owner = process((call, (frame("Process.join", 149, "/multiprocessing/process.py", library=True), exits)), pid=MAIN)
    found = wait_of(owner, replace(child(200, threads[0]), clocks=clocks, ppid=MAIN))
    assert isinstance(found.hold, BlocksItsChild) is (why is not None)
    if why is not None and isinstance(found.hold, BlocksItsChild):
        assert found.why.endswith(why) and found.hold.at == "queue"


AT_LOCK = frame("save", 9, source="with L: write()")
AT_EVENT = frame("Condition.wait", 359, "/usr/lib/python3.13/threading.py", library=True, source="waiter.acquire()")
IN_LOGGING = frame(
    "Handler.acquire", 926, "/usr/lib/python3.11/logging/__init__.py", library=True, source="self.lock.acquire()"
)
ALONE = kernel(200, "futex", timed=False)


@pytest.mark.parametrize(
    ("threads", "at", "kind"),
    [
        ([ALONE], AT_LOCK, ChildAtLock),
        ([ALONE], IN_LOGGING, ChildAtLock),
        ([ALONE], AT_EVENT, Elsewhere),
        ([ALONE], frame("save", 9, source="done.acquire()"), Elsewhere),
        ([ALONE], None, Elsewhere),
        ([ALONE, kernel(201, "futex", timed=False)], AT_LOCK, Elsewhere),
        ([kernel(200, "futex", timed=True)], AT_LOCK, Elsewhere),
        ([kernel(200, "futex", AwaitedFile(kind="shared-memory", name="/dev/shm/x"), timed=False)], AT_LOCK, Elsewhere),
        ([kernel(200, "read", timed=False)], AT_LOCK, Elsewhere),
    ],
)
def test_a_child_at_a_lock_that_was_held_when_it_was_forked(
    threads: list[KernelThread], at: Frame | None, kind: type[Hold]
) -> None:
    """No other thread of it could release the lock. One in shared memory, another process may release; and an event, or a lock
    that is used as one, a handler of signals."""
    owner = process((kernel(MAIN, "wait4", timed=False), (frame("save", 12),)), pid=MAIN)
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=tuple(threads))
    frames = () if at is None else (at, frame("main", 3))
    forked = replace(child(200, threads[0], *frames), clocks=clocks, ppid=MAIN, argv=owner.argv)
    hold = wait_of(owner, forked).hold
    assert type(hold) is kind
    assert hold.ends == ("never" if kind is ChildAtLock else "unknown")
    if kind is ChildAtLock:
        assert str(hold).endswith("which is waiting for a lock that was held when it was forked")
    gives_up = process((kernel(MAIN, "waitid", timed=True), (frame("save", 12),)), pid=MAIN)
    assert wait_of(gives_up, forked).hold.ends != "never"


@pytest.mark.parametrize(
    ("holders", "call", "others", "kind"),
    [
        ((100,), kernel(MAIN, "epoll_wait", timed=False), (), InEventLoop),
        ((100,), kernel(MAIN, "epoll_wait", timed=False), ("gloo_tcp_loop", "pt_tcpstore_uv"), InEventLoop),
        ((100,), kernel(MAIN, "epoll_wait", timed=True), (), OnNetwork),
        ((100, 900), kernel(MAIN, "epoll_wait", timed=False), (), OnNetwork),
        ((100,), kernel(MAIN, "select", timed=False), (), OnNetwork),
        ((100,), kernel(MAIN, "epoll_wait", timed=False), ("grpc_poller",), OnNetwork),
        ((100,), kernel(MAIN, "epoll_wait", timed=False), ("TP_",), OnNetwork),
    ],
)
def test_an_event_loop_that_only_its_own_process_can_wake(
    holders: tuple[int, ...], call: KernelThread, others: tuple[str, ...], kind: type[Hold]
) -> None:
    """It watches one end of the pair of sockets by which threads wake it, and this process has the other end. No other thread may
    get what wakes it from another process."""
    wakes = AwaitedFile(kind="socket", name="socket:[9]", inode=9, descriptor=11,
                        holders=tuple(Holder(pid=pid, name="python3", state="S") for pid in holders))  # fmt: skip

    def loop(*files: AwaitedFile) -> Process:
        owner = process((replace(call, files=files), (frame("main", 13),)), pid=MAIN)
        polls = [replace(kernel(200 + at, "epoll_wait", timed=False), name=name) for at, name in enumerate(others)]
        assert isinstance(owner.clocks, Clocks)
        return replace(owner, clocks=replace(owner.clocks, threads=(*owner.clocks.threads, *polls)))

    assert type(wait_of(loop(wakes)).hold) is kind
    assert not isinstance(wait_of(loop(*[wakes] * 16)).hold, InEventLoop)
    assert not isinstance(wait_of(loop(wakes), child(200, kernel(200, "clock_nanosleep"))).hold, InEventLoop)


def test_the_first_of_several_waits_to_end_counts() -> None:
    peer = AwaitedFile(
        kind="socket", name="socket:[9]", inode=9, holders=(Holder(pid=900, name="db", state="S", works=True),)
    )
    owner = process(
        (kernel(MAIN, "futex"), GET),
        (kernel(LOADER, "openat", ON_NFS), (frame("read_shard", 40),)),
        (kernel(WRITER, "recvfrom", peer), (frame("query", 50),)),
    )
    hold = wait_of(owner).hold
    assert isinstance(hold, OnNetwork) and hold.ends == "by-itself"


def test_a_child_that_waits_until_its_output_is_read() -> None:
    """The rank polls the child's standard output; the child writes to its standard error, which nobody reads."""
    owner = process((kernel(MAIN, "poll", pipe(5, 200)), (frame("step", 12),)))
    stuck = child(200, kernel(200, "write", pipe(6, MAIN, writes=True, descriptor=2), wchan="anon_pipe_write"))
    found = wait_of(owner, stuck)
    assert isinstance(found.hold, BlocksItsChild) and found.hold.ends == "never" and found.hold.replies
    assert "until this rank reads its standard error" in found.why
    asks = replace(pipe(9, 200), kind="socket", name="socket:[9]", inode=9)
    at_request = wait_of(process((kernel(MAIN, "recvfrom", asks, timed=False), (frame("step", 12),))), stuck).hold
    assert isinstance(at_request, BlocksItsChild) and at_request.replies
    for_end = wait_of(process((kernel(MAIN, "wait4", timed=False), (frame("step", 12),))), stuck).hold
    assert isinstance(for_end, BlocksItsChild) and not for_end.replies
    assert not isinstance(
        wait_of(owner, child(200, kernel(200, "write", pipe(5, MAIN, writes=True)))).hold, BlocksItsChild
    )


def test_a_child_that_waits_for_input_that_only_the_rank_can_give() -> None:
    """`Popen.wait` before the child's standard input is closed. One of its threads reads that, and the others wait for it."""
    owner = process((kernel(MAIN, "wait4", timed=False), (frame("finish", 8),)), pid=MAIN)
    at_rest = kernel(200, "futex", timed=False)

    def zstd(*writers: int, pid: int = 200, main: KernelThread = at_rest, **more: Any) -> Process:
        reads = kernel(201, "read", pipe(5, *writers, descriptor=0), **{"timed": False, **more})
        return replace(child(pid, main), clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(main, reads)))

    found = wait_of(owner, zstd(MAIN))
    assert isinstance(found.hold, BlocksItsChild) and (found.hold.at, found.hold.ends) == ("input", "never")
    assert found.why.endswith("which waits until this rank writes to its standard input or closes it")
    for other in (
        zstd(MAIN, 900),  # another process may write
        zstd(),  # the writers are not known
        zstd(MAIN, timed=True),
        zstd(MAIN, cpu_ns=1000),  # it works in between
        zstd(MAIN, delayed_ns=1000),
        zstd(MAIN, main=kernel(200, "poll")),
    ):
        assert not isinstance(wait_of(owner, other).hold, BlocksItsChild)
    sleeps = child(300, kernel(300, "clock_nanosleep", timed=True))  # for which the rank may wait
    assert not isinstance(wait_of(owner, zstd(MAIN), sleeps).hold, BlocksItsChild)


def test_a_worker_of_a_pool_that_is_idle_keeps_nobody() -> None:
    """The owner reads results, which any of its workers may send. One has nothing to do, and waits for its next task."""
    owner = process((kernel(MAIN, "read", pipe(5, 200, 300), timed=False), (frame("collect", 12),)), pid=MAIN)
    idle = child(300, kernel(300, "read", pipe(7, MAIN, 300), timed=False), frame("loop", 3))
    works = child(200, kernel(200, "", cpu_ns=900_000_000, state="R"), frame("work", 5))
    assert not isinstance(wait_of(owner, idle, works).hold, BlocksItsChild)
    other = child(200, kernel(200, "read", pipe(8, MAIN, 200), timed=False), frame("loop", 3))
    assert isinstance(wait_of(owner, idle, other).hold, BlocksItsChild)
    stuck = child(200, kernel(200, "write", pipe(6, MAIN, writes=True, descriptor=2)))
    found = wait_of(owner, idle, stuck).hold  # the idle one is not the cause
    assert isinstance(found, BlocksItsChild) and (found.pid, found.at) == (200, "output")


RESTS, PASSES = ("futex", frame("_feed", 231, "/multiprocessing/queues.py", library=True)), (
    "accept4", frame("_serve", 138, "/multiprocessing/resource_sharer.py", library=True)
)  # fmt: skip


@pytest.mark.parametrize(
    ("thread", "alone"),
    [(RESTS, True), (PASSES, True), (("futex", frame("pump", 4)), False), (("epoll_wait", RESTS[1]), False)],
)
def test_another_thread_may_read_what_a_child_writes(thread: tuple[str, Frame], alone: bool) -> None:
    """Not one of `multiprocessing`, which a worker of a DataLoader has."""
    call, at = thread
    main = (kernel(MAIN, "read", pipe(5, 200)), (frame("step", 12),))
    owner = process(main, (kernel(LOADER, call, timed=False), (at,)), pid=MAIN)
    stuck = child(200, kernel(200, "write", pipe(6, MAIN, writes=True, descriptor=2)))
    assert isinstance(wait_of(owner, stuck).hold, BlocksItsChild) is alone


@pytest.mark.parametrize(
    ("takers", "line", "kind"),
    [
        ((MAIN,), "if not self._sem.acquire(block, timeout):", BlocksItsChild),
        ((MAIN, 900), "if not self._sem.acquire(block, timeout):", OnNetwork),
        (None, "if not self._sem.acquire(block, timeout):", OnNetwork),
        ((MAIN,), "with self._notempty:", OnNetwork),
    ],
)
def test_a_child_cannot_answer_while_its_queue_is_full(
    takers: tuple[int, ...] | None, line: str, kind: type[Hold]
) -> None:
    """The rank waits for the answer of its actor, which puts into a queue from which only the rank takes."""
    answer = AwaitedFile(kind="socket", name="socket:[9]", inode=9, descriptor=9, holders=pipe(9, 200).holders)
    owner = process((kernel(MAIN, "read", answer, timed=False), (frame("push", 17),)), pid=MAIN)
    held = pipe(9, *takers).holders if takers is not None else None
    places = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.mp-x", inode=3, holders=held)
    put = frame("JoinableQueue.put", 311, "/multiprocessing/queues.py", library=True, source=line)
    actor = child(200, kernel(200, "futex", places, timed=False), put, frame("actor", 8))
    hold = wait_of(owner, actor).hold
    assert type(hold) is kind
    assert hold.ends == ("never" if kind is BlocksItsChild else "unknown") and hold.names_its_child


@pytest.mark.parametrize(
    ("name", "descriptor", "hold"),
    [
        ("/dev/ttyS0", 11, Serves),
        ("/dev/pts/2", 11, Serves),
        ("/dev/pts/2", 0, WaitsForInput),
        ("/dev/tty", 4, WaitsForInput),
        ("/dev/input/event3", 5, Serves),
    ],
)
def test_a_serial_line_brings_data_of_a_device(name: str, descriptor: int, hold: type) -> None:
    line = AwaitedFile(kind="device", name=name, descriptor=descriptor)
    assert isinstance(wait_of(process((kernel(MAIN, "read", line), (frame("read", 45),)))).hold, hold)
    # A disk that does not answer, and a file in memory.
    for stuck, state in ((replace(line, kind="file"), "S"), (line, "D")):
        reads = kernel(MAIN, "read", stuck, state=state)
        assert not isinstance(wait_of(process((reads, (frame("read", 45),)))).hold, Serves)


@pytest.mark.parametrize(("name", "what"), [("inotify", "changes of files"), ("[fanotify]", "changes of files")])
def test_the_kernel_tells_of_what_others_do(name: str, what: str) -> None:
    source = AwaitedFile(kind="other", name=f"anon_inode:{name}", descriptor=7)
    hold = wait_of(process((kernel(MAIN, "read", source), (frame("read", 45),)))).hold
    assert isinstance(hold, Serves) and str(hold) == f"waiting for {what} on {name.strip('[]')} (fd 7)"


@pytest.mark.parametrize(("states", "hold"), [("T", ChildStopped), ("TT", ChildStopped), ("TS", Elsewhere)])
def test_the_only_children_that_write_what_a_rank_reads_are_stopped(states: str, hold: type) -> None:
    """`self.process.stdout.readline()`: no function of Python says that this is a wait for a child."""
    output = replace(
        pipe(5, 200), holders=tuple(Holder(pid=200 + at, name="reward", state=state) for at, state in enumerate(states))
    )
    owner = process((kernel(MAIN, "read", output, timed=False), (frame("score", 35),)))
    children = [replace(child(200 + at, kernel(200 + at, "read")), state=state) for at, state in enumerate(states)]
    assert isinstance(wait_of(owner, *children).hold, hold)
    gives_up = process((kernel(MAIN, "poll", output, timed=True), (frame("score", 35),)))
    assert not isinstance(wait_of(gives_up, *children).hold, ChildStopped)


def test_the_sleep_of_an_awaited_child_is_a_period() -> None:
    owner = process(
        (kernel(MAIN, "wait4"), (frame("Popen.wait", 1, "/usr/lib/python3.11/subprocess.py", library=True),))
    )
    asleep = child(200, kernel(200, "clock_nanosleep", sleep_seconds=20.0, whole_sleep_seconds=45.0))
    found = wait_of(owner, asleep)
    assert found.state == "waiting-child" and found.hold.period == 45.0


def test_a_rank_whose_child_polls_polls() -> None:
    """A child that looks every two seconds for a new checkpoint, and prints what it has seen."""
    owner = process((kernel(MAIN, "read", pipe(5, 200)), (frame("next", 32),)))
    looks = Loop(line=8, end_line=16, header="while True", counters=(), every=0, start=None)
    asleep = kernel(200, "clock_nanosleep", sleep_seconds=1.5, whole_sleep_seconds=2.0)
    watcher = child(200, asleep, frame("<module>", 16, loops=(looks,)))
    found = wait_of(owner, watcher)
    for_end = process((kernel(MAIN, "wait4"), (frame("wait", 1, "/usr/lib/python3.11/subprocess.py", library=True),)))
    assert not isinstance(wait_of(for_end, watcher).hold, Asleep)
    grandchild = child(201, kernel(201, "clock_nanosleep", sleep_seconds=40.0, whole_sleep_seconds=60.0))
    assert not isinstance(wait_of(owner, watcher, grandchild).hold, Asleep)
    assert isinstance(found.hold, Asleep)
    assert (found.state, found.hold.polls, found.hold.period) == ("waiting-child", True, 2.0)
    assert found.why == "waiting for its child process (pid 200), which is polling (asleep for 2.0 s between attempts)"


def test_a_pipe_of_another_process_is_no_wait_for_a_child() -> None:
    owner = process((kernel(MAIN, "read", pipe(5, 900)), (frame("step", 12),)))
    assert isinstance(wait_of(owner, child(200, kernel(200, "pause"))).hold, ReadsPipe)


@pytest.mark.parametrize(
    ("states", "ends"), [("T", "never"), ("TT", "never"), ("TS", "unknown"), ("t", "unknown"), ("", "unknown")]
)
def test_a_wait_for_stopped_processes_never_ends(states: str, ends: str) -> None:
    """A traced one (t) may have an observer, which lets it go."""
    holders = tuple(Holder(pid=900 + at, name="db", state=state) for at, state in enumerate(states))
    peer = AwaitedFile(kind="socket", name="socket:[9]", inode=9, holders=holders)
    assert wait_of(process((kernel(MAIN, "recvfrom", peer), (frame("query", 50),)))).hold.ends == ends


def test_a_thread_that_sleeps_shortly_may_end_the_wait() -> None:
    nap = kernel(LOADER, "clock_nanosleep", sleep_seconds=0.5, whole_sleep_seconds=0.6)
    found = wait_of(process((kernel(MAIN, "futex"), GET), (nap, (frame("produce", 40),))))
    assert found.hold.ends == "by-itself" and "sleeps for 0.5 s and then continues" in found.why


def test_what_a_thread_waits_for_is_named_by_the_function_that_tells_most() -> None:
    python_files = "/usr/lib/python3.11/"
    condition = frame("Condition.wait", 327, python_files + "threading.py", library=True, source="waiter.acquire()")
    event = frame(
        "Event.wait", 629, python_files + "threading.py", library=True, source="signaled = self._cond.wait(timeout)"
    )
    result = frame("Future.result", 451, python_files + "concurrent/futures/_base.py", library=True)
    task = frame("ApplyResult.get", 768, python_files + "multiprocessing/pool.py", library=True)
    of_ray = frame("Worker.get_objects", 1007, "/x/site-packages/ray/_private/worker.py", library=True)
    for frames, why in (
        ((condition,), "waiting for a condition that another thread notifies"),
        ((condition, event), "waiting for an event that another thread sets"),
        ((condition, result), "waiting for the result of a task"),
        ((condition, event, task), "waiting for the result of a pool's task"),
        ((of_ray,), "waiting for the result of a Ray task"),
    ):
        assert wait_of(process((kernel(MAIN, "futex"), (*frames, frame("train", 12))))).why == why


@pytest.mark.parametrize(
    ("file", "line", "user_file", "own"),
    [
        ("queue.py", "self.not_full.wait()", "/app/train.py", True),
        ("multiprocessing/queues.py", "if not self._sem.acquire(block, timeout):", "/app/train.py", False),
        ("multiprocessing/queues.py", "if not self._sem.acquire(block, timeout):", "/app/queue.py", False),
    ],
)
def test_only_a_queue_of_its_own_process_needs_another_thread(file: str, line: str, user_file: str, own: bool) -> None:
    """Another process may take an entry of a multiprocessing queue, whatever the user's files are called."""
    put = frame("Queue.put", 88, f"/usr/lib/python3.11/{file}", library=True, source=line)
    hold = wait_of(process((kernel(MAIN, "futex", timed=False), (put, frame("fill", 12, user_file))))).hold
    assert isinstance(hold, AtOwnQueue) is own
    assert hold.what is not None and hold.what.endswith("room in a full queue")


RESULT = (AT_EVENT, frame("Future.result", 451, "/concurrent/futures/_base.py", library=True))
RUN = frame("_WorkItem.run", 58, "/concurrent/futures/thread.py", library=True)
NORM = frame("norm", 8, source="return ex.submit(norm, doc).result()")
FETCH = frame("fetch", 20, source="return request(doc)")


@pytest.mark.parametrize(
    ("second", "timed", "kind"),
    [
        ((*RESULT, NORM, RUN), False, AtOwnTasks),
        ((*RESULT, NORM, RUN), True, Elsewhere),
        ((FETCH, RUN), False, Elsewhere),  # it works at a task
        ((frame("_worker", 81, "/concurrent/futures/thread.py", library=True),), False, Elsewhere),  # it waits for one
        ((*RESULT, NORM), False, Elsewhere),  # a thread of the program, to which a library may give the result
    ],
)
def test_no_thread_is_left_for_the_tasks_of_a_pool(second: tuple[Frame, ...], timed: bool, kind: type[Hold]) -> None:
    """Its tasks wait for results of further tasks of the same pool."""
    owner = process(
        (kernel(MAIN, "futex", timed=False), (*RESULT, frame("train", 12))),
        (kernel(LOADER, "futex", timed=False), (*RESULT, NORM, RUN)),
        (kernel(WRITER, "futex", timed=timed), second),
        pid=MAIN,
    )
    hold = wait_of(owner).hold
    assert type(hold) is kind
    if isinstance(hold, AtOwnTasks):
        assert hold.threads[0] == "thread-101 at train.py:8 `return ex.submit(norm, doc).result()`"


@pytest.mark.parametrize(("sockets", "timeout"), [(1, 20.0), (2, None)])
def test_a_poll_of_several_sockets_has_no_timeout_of_a_request(sockets: int, timeout: float | None) -> None:
    """An event loop polls until its next timer, and then polls again."""
    peers = [AwaitedFile(kind="socket", name=f"socket:[{at}]", descriptor=at, inode=at) for at in range(7, 7 + sockets)]
    hold = wait_of(process((kernel(MAIN, "poll", *peers, timeout_seconds=20.0), (frame("query", 5),)))).hold
    assert isinstance(hold, OnNetwork) and hold.timeout_seconds == timeout


def test_a_lock_is_named_by_its_own_words() -> None:
    """A thread that waits for one which is at a lock: the finding is about the lock."""
    at_lock = frame("flush", 40, source="with self.lock:")
    owner = process(
        (kernel(MAIN, "futex"), GET),
        (kernel(LOADER, "futex"), (at_lock,)),
    )
    hold = wait_of(owner).hold
    assert isinstance(hold, AtLock) and "no thread releases the lock" in hold.what


# --- the process that gives a rank its requests --------------------------------------------------------------------------

LISTENS = AwaitedFile(kind="socket", name="socket:[7]", descriptor=12, inode=7)
AT_8000 = Connection(
    pid=50, namespace="net:[1]", state="LISTEN", local_address="127.0.0.1", local_port=8000, remote_address="::",
    remote_port=0, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=None, last_sent_ms=None, last_received_ms=None,
    inode=7,
)  # fmt: skip
SERVE = (frame("BaseServer.serve_forever", 233, "/usr/lib/python3.11/socketserver.py", library=True), frame("main", 9))
JOIN = (
    frame("BaseProcess.join", 149, "/usr/lib/python3.11/multiprocessing/process.py", library=True),
    frame("main", 9),
)
POLL = (frame("take_request", 12, source="time.sleep(0.02)"),)


def polling(number: int = MAIN) -> KernelThread:
    return kernel(
        number, "clock_nanosleep", voluntary_switches=50, sleep_seconds=0.01, whole_sleep_seconds=0.02, timed=True
    )


def front_end(
    *threads: tuple[KernelThread, tuple[Frame, ...]], listens: Connection | None = AT_8000, **more: Any
) -> Engine | None:
    values = {"pid": 50, "role": "launcher", "name": "api_server", **more}
    return find_engine(replace(process(*threads), **values), [listens] if listens is not None else [])


def wait_of_worker(engine: Engine | None, thread: KernelThread, *frames: Frame) -> ThreadWait:
    """What a rank waits for that `engine` has started."""
    owner = process((thread, frames))
    assert isinstance(owner.stack, Stack)
    waiter = Waiter(owner, owner.stack.threads[0], thread, engine=engine)
    return with_end(waiter, find_wait(waiter))


@pytest.mark.parametrize(
    ("thread", "frames"),
    [(polling(), POLL), (kernel(MAIN, "poll"), (frame("Poller.poll", 106, "/site-packages/zmq/sugar/poll.py"),))],
    ids=["polls memory", "at a socket of a library"],
)
def test_who_was_started_by_a_server_waits_for_its_requests(thread: KernelThread, frames: tuple[Frame, ...]) -> None:
    hold = wait_of_worker(front_end((kernel(50, "poll", LISTENS), SERVE)), thread, *frames).hold
    assert isinstance(hold, GetsRequests) and hold.sender == "pid 50 (api_server)"


SEMAPHORE = frame(
    "Queue.put", 89, "/lib/python3.11/multiprocessing/queues.py", library=True,
    source="if not self._sem.acquire(block, timeout):",
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "of_sibling", "able", "ends"),
    [
        ("S", "S", (50,), "unknown"),
        ("T", "S", (50,), "never"),
        ("S", "T", (60, 50), "unknown"),
        ("T", "T", (60, 50), "never"),
    ],
)
def test_a_rank_that_gives_replies_to_a_server_waits_for_it_to_take_them(
    state: str, of_sibling: str, able: tuple[int, ...], ends: str
) -> None:
    """The other ranks have inherited the queue, and wait for this one; one that is stopped may be who reads it."""
    front, sibling = Holder(pid=50, name="api_server", state=state), Holder(pid=60, name="python", state=of_sibling)
    memory = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", holders=(sibling, front))
    server = front_end((kernel(50, "poll", LISTENS), SERVE))
    assert server is not None
    server = server._replace(ranks=frozenset({MAIN, 60}))
    hold = wait_of_worker(server, kernel(MAIN, "futex", memory, timed=False), SEMAPHORE, frame("publish", 9)).hold
    assert isinstance(hold, AtSharedLock) and hold.ends == ends
    assert tuple(holder.pid for holder in hold.holders or ()) == able


@pytest.mark.parametrize(("method", "line", "requests"), [("put", "not_full", False), ("get", "not_empty", True)])
def test_only_who_takes_from_a_queue_gets_what_a_thread_takes_from_outside(
    method: str, line: str, requests: bool
) -> None:
    queue = frame(f"Queue.{method}", 140, "/lib/python3.11/queue.py", library=True, source=f"self.{line}.wait()")
    watches = frame("Inotify.read_events", 160, "/site-packages/watchdog/observers/inotify_c.py", library=True)
    tells = AwaitedFile(kind="other", name="anon_inode:inotify", descriptor=12)
    owner = process((kernel(MAIN, "futex"), (queue, frame("loop", 9))), (kernel(48, "read", tells), (watches,)))
    assert isinstance(wait_of(owner).hold, GetsRequests) is requests


def test_a_server_takes_requests_also_between_two_polls_of_its_socket() -> None:
    looks_after_other_things = front_end((KernelThread(
        tid=50, name="python3", state="R", cpu_ns=1, voluntary_switches=2, involuntary_switches=0), SERVE))  # fmt: skip
    assert isinstance(wait_of_worker(looks_after_other_things, polling(), *POLL).hold, GetsRequests)


@pytest.mark.parametrize(
    "engine",
    [
        None,
        front_end((kernel(50, "futex"), (frame("main", 9),)), listens=None),
        front_end((kernel(50, "wait4"), JOIN), (kernel(51, "poll", LISTENS), SERVE)),  # it serves its metrics, say
    ],
    ids=["a launcher's rank", "its parent does not listen", "its parent waits for the ranks' end"],
)
def test_who_polls_under_any_other_process_may_be_stuck(engine: Engine | None) -> None:
    assert isinstance(wait_of_worker(engine, polling(), *POLL).hold, Asleep)


def test_who_waits_for_a_process_that_is_known_does_not_wait_for_requests() -> None:
    reads = AwaitedFile(
        kind="socket", name="socket:[9]", descriptor=3, inode=9, holders=(Holder(pid=9, name="db", state="S"),)
    )
    engine = front_end((kernel(50, "poll", LISTENS), SERVE))
    assert not isinstance(wait_of_worker(engine, kernel(MAIN, "recvfrom", reads), frame("query", 5)).hold, GetsRequests)


def test_nothing_comes_from_a_server_that_is_stopped() -> None:
    stopped = KernelState(state="T")
    engine = front_end((kernel(50, "poll", LISTENS, state="T"), SERVE), state="T", at_start=stopped)
    hold = wait_of_worker(engine, polling(), *POLL).hold
    assert isinstance(hold, EngineStopped) and hold.ends == "never"
    assert str(hold) == "waiting for requests from pid 50 (api_server), which is stopped by a signal (state T)"


@pytest.mark.parametrize(
    "thread",
    [
        kernel(MAIN, "epoll_wait"),
        kernel(MAIN, "futex"),
        polling(),
        kernel(MAIN, "", voluntary_switches=115, state="R"),
    ],
    ids=["epoll", "futex", "asleep", "running"],
)
def test_a_worker_of_ray_waits_for_tasks(thread: KernelThread) -> None:
    """Its loop wakes a hundred times a second, and is in another system call at each look."""
    loop = frame("Worker.main_loop", 1069, "/site-packages/ray/_private/worker.py")
    wait = wait_of_worker(None, thread, loop)
    assert (wait.state, str(wait.hold)) == ("waiting-io", "waiting for requests from the Ray driver")


@pytest.mark.parametrize("more", [{"state": "R"}, {"wchan": "hrtimer_nanosleep"}], ids=["running", "asleep again"])
def test_who_polls_is_recognised_also_between_two_sleeps(more: dict[str, str]) -> None:
    awake = kernel(MAIN, "", voluntary_switches=50, **more)
    hold = wait_of_worker(None, awake, *POLL).hold
    assert isinstance(hold, Asleep) and hold.polls


def test_who_listens_at_a_unix_socket_waits_for_requests() -> None:
    requests = AwaitedFile(kind="socket", name="socket:[5]", descriptor=12, inode=5, listens=True)
    hold = wait_of_worker(None, kernel(MAIN, "poll", requests), frame("handle_request", 4)).hold
    assert (str(hold), hold.ends) == ("waiting for requests on a Unix socket (fd 12)", "by-itself")


def test_the_thread_that_passes_open_files_gets_no_requests() -> None:
    """Each worker of a loader has one, which waits at a Unix socket."""
    files = AwaitedFile(kind="socket", name="socket:[5]", descriptor=18, inode=5, listens=True)
    sharer = frame(
        "_ResourceSharer._serve", 138, "/usr/lib/python3.11/multiprocessing/resource_sharer.py", library=True
    )
    worker = process((kernel(MAIN, "futex"), GET), (kernel(LOADER, "accept4", files), (sharer,)))
    assert isinstance(wait_of(worker).hold, Elsewhere)


@pytest.mark.parametrize("twice", [True, False])
def test_a_server_whose_handler_is_locked_out_for_ever_serves_nobody(twice: bool) -> None:
    """The handler takes a lock again that it holds."""
    again = frame("reload", 61, source="with self.guard:" if twice else "compute()")
    handler = (again, frame("times", 54, source="self.reload()", contexts=("self.guard",)))
    serves = process((kernel(MAIN, "poll", LISTENS), SERVE), (kernel(48, "futex"), handler))
    hold = wait_of(serves, connections=(AT_8000,)).hold
    assert isinstance(hold, AtLock if twice else Serves)


@pytest.mark.parametrize(
    ("other", "shared", "dead"),
    [
        (frame("run", 9, "/lib/python3.11/threading.py", library=True), False, True),
        (frame("fetch", 11, source="time.sleep(40)"), False, False),  # it may have the lock
        (frame("run", 9, "/lib/python3.11/threading.py", library=True), True, False),  # another process may have it
    ],
)
def test_a_worker_at_a_lock_is_stuck_only_if_no_other_thread_can_have_it(
    other: Frame, shared: bool, dead: bool
) -> None:
    """A thread of it fetches the next shard with the lock held. The run went on after "hung"."""
    takes = frame("get", 21, source="with self.lock:", locals=(local("self", "<Shards>", address=1),))
    memory = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", inode=5)
    worker = process(
        (kernel(MAIN, "futex", *([memory] if shared else [])), (takes,)), (kernel(LOADER, "futex"), (other,))
    )
    assert loader._is_at_dead_lock(replace(worker, stack_before=worker.stack)) is dead
