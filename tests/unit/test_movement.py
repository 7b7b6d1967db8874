"""What counts as movement: work anywhere in a rank's process tree, and loops that go round for nothing."""

import ast
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.phrases import duration
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.model.holds import RPC_DEFAULT
from hangdoc.reasoning.text.next_steps import RESUME
from hangdoc.snapshot import (
    AwaitedFile,
    CallForm,
    Clocks,
    Connection,
    Connections,
    Counter,
    FileBytes,
    FlightRecorder,
    Frame,
    Holder,
    Interpreter,
    KernelState,
    KernelThread,
    Launch,
    Loader,
    Loop,
    Loops,
    Process,
    Progress,
    PythonThread,
    Recorded,
    RecordedGroup,
    Snapshot,
    Stack,
    Unavailable,
)
from tests.rules.shapes import LOADER, WORKER, in_loop, steps
from tests.unit.builders import LOOP, TORCH, c10d, frame, helper, local, rank, silent, snapshot, stack, train
from tests.unit.recordings import T0_US, history_of, recorder

ENDLESS = Loop(line=40, end_line=60, header="while True", counters=("tries",), advances=("tries",))
SHARDS = Loop(line=42, end_line=50, header="for i, row in enumerate(rows)", counters=("i",), start=0, advances=("i",))


def job(evidence: Snapshot, patience: float = 30.0) -> Job:
    diagnosis = diagnose(evidence, patience=patience)
    assert not diagnosis.problems
    return diagnosis.jobs[0]


def told(found: Job) -> tuple[str, str]:
    return found.verdict, found.blockages[0].kind


def counted(function: str, name: str, before: int, after: int) -> Counter:
    return Counter(name=name, function=function, file="/home/me/train.py", before=before, after=after, looped=True)


def busy(*frames: Frame, counters: tuple[Counter, ...] = (), **more: object) -> Snapshot:
    """Rank 0 waits for a minute for rank 1, which uses a core."""
    return snapshot(in_loop(0, 4), rank(1, *frames, cpu=0.9, progress=Progress(counters=counters), **more))  # type: ignore[arg-type]


def source(function: str, line: int, *loops: Loop) -> Frame:
    return frame(function, line, source="x = step(x)", loops=loops)


MAIN = frame("train", 15, source="evaluate(model)", loops=(LOOP,))


def test_a_library_call_that_burns_cpu_is_work() -> None:
    """`datasets.map` in the rank itself: no counter of the user's moves."""
    library = frame("map", 9, "/e/site-packages/datasets/arrow_dataset.py", library=True)
    assert told(job(busy(library, source("prepare", 44), MAIN))) == ("waiting", "working")
    assert told(job(busy(library, source("prepare", 44), MAIN, files=FileBytes(read_bytes=0, written_bytes=1_500_000)))) == (
        "waiting", "working",
    )  # fmt: skip


def test_a_loop_without_an_end_is_no_work() -> None:
    """A search, a retry: its own counter moves, and that of the training loop does not."""
    spins = busy(source("search", 44, ENDLESS), MAIN, counters=(counted("search", "tries", 5, 9_000_000),))
    assert told(job(spins)) == ("hung", "busy")
    evidence = " ".join(line.text for line in job(spins).findings[0].evidence)
    assert "it repeats the loop `while True`" in evidence and "its loop counters changed" not in evidence
    silently = busy(source("search", 44, replace(ENDLESS, counters=(), advances=())), MAIN)
    assert told(job(silently)) == ("hung", "busy")
    assert job(silently, patience=90.0).verdict == "waiting"


def test_the_outermost_loop_may_have_no_end() -> None:
    """`while True: step += 1` is how many people train."""
    training = replace(ENDLESS, counters=("step",), advances=("step",))
    moves = busy(source("main", 44, training), counters=(counted("main", "step", 5, 9),))
    assert told(job(moves)) == ("waiting", "working")


def test_a_loader_that_starts_over_for_ever() -> None:
    fetches = (source("rows", 44, ENDLESS, SHARDS), frame("train", 10, source="for step, batch in ...", loops=(LOOP,)))
    restarts = (counted("rows", "tries", 3, 9000), counted("rows", "i", 2, 5))
    assert told(job(busy(*fetches, counters=restarts))) == ("hung", "starving")
    # One pass over its rows: slow, and it ends.
    assert told(job(busy(*fetches, counters=(counted("rows", "i", 2, 500),)))) == ("waiting", "working")


def test_a_loader_that_gives_batches_says_how_far_it_has_come() -> None:
    """ "No element came" was said of a rank that was seen to receive eight batches, and "nothing shows how far it has come"."""
    fetches = (source("cycle", 44), frame("main", 10, source="next(it)", loops=(LOOP,)))
    loader = Loader(kind="_SingleProcessDataLoaderIter", done=14, done_before=6, total=30, begins=10, function="main")
    files = FileBytes(read_bytes=0, written_bytes=0)
    found = job(
        busy(*fetches, files=files, loops=Loops(loaders=(loader,)), stack=stack(*fetches), stack_before=stack(*fetches))
    )
    (finding,) = found.findings
    assert "it received 8 batches while it was observed (14 of 30)" in finding.summary
    assert "Nothing shows how far" not in finding.remedy


@pytest.mark.parametrize("asked", [True, False])
def test_workers_that_fetch_ahead_are_not_what_others_wait_for(asked: bool) -> None:
    """Rank 1 loads the data of its evaluation itself, within the loop over another loader, whose workers fetch on meanwhile."""
    loads = (
        frame("Photos.__getitem__", 17, source="time.sleep(0.03)"),
        frame("_SingleProcessDataLoaderIter._next_data", 785, TORCH + "utils/data/dataloader.py", library=True),
        frame("evaluate.<locals>.<genexpr>", 25),
        frame("evaluate", 25, source="sum(net(x) for x, y in val)"),
        train(12, source="evaluate(net, val)"),
    )
    trains = Loader(
        kind="_MultiProcessingDataLoaderIter", done=3, begins=10, function="train", asked=asked, workers=(900,)
    )
    evaluates = rank(1, *loads, progress=steps(3, 4), loops=Loops(loaders=(trains,)))
    worker = helper(900, 101, frame("Photos.__getitem__", 17))
    (finding,) = job(snapshot(in_loop(0, 4), evaluates, worker)).findings
    texts = [line.text for line in finding.evidence]
    assert "is loading data for evaluate() at" in finding.summary
    assert (
        "asks for that data at me/train.py:25 `sum(net(x) for x, y in val)`, called at me/train.py:12 `evaluate(net, val)`"
        in texts
    )
    assert any("900" in text for text in texts) is asked


@pytest.mark.parametrize(
    ("length", "read", "threads", "expected"),
    [
        (0, 0, 1, ("hung", "starving")),
        (0, 0, 2, ("waiting", "working")),  # another thread may fill the list
        (0, 4096, 1, ("waiting", "working")),  # what was read may have been left out
        (6, 0, 1, ("waiting", "working")),
        (None, 4096, 1, ("waiting", "working")),
    ],
)
def test_a_generator_that_repeats_what_is_empty(
    length: int | None, read: int, threads: int, expected: tuple[str, str]
) -> None:
    """`while True: for x in urls: yield x`. A filter that lets nothing pass is not told from one over much data."""
    loops = (Loop(line=40, end_line=60, header="while True"), Loop(line=44, end_line=45, header="for x in urls"))
    urls = local("urls", "[...]", length=length)
    fetches = (
        replace(source("cycle", 44, *loops), locals=(urls,)),
        frame("main", 10, source="next(it)", loops=(LOOP,)),
    )
    fills = PythonThread(tid=900, name="fills", active=False, owns_gil=False, frames=(frame("fill", 70),))
    both = stack(*fetches)
    assert isinstance(both, Stack)
    both = replace(both, threads=(*both.threads, *[fills] * (threads - 1)))
    found = job(busy(*fetches, files=FileBytes(read_bytes=read, written_bytes=0), stack=both, stack_before=both))
    assert told(found) == expected
    (finding,) = found.findings
    if expected[0] == "waiting":
        assert ("no element came and it was not seen to read" in finding.summary) is (read == 0)
    else:
        told_of = "it repeats the loop `while True`; `for x in urls` has nothing to go over"
        assert told_of in [line.text for line in finding.evidence]


def test_a_worker_that_gets_little_of_a_core_is_at_work() -> None:
    """On a full host, one with 77 ms of CPU in a second was said to get almost none."""
    clocks = rank(1, cpu=0.077, pid=7, kernel={"state": "R", "voluntary_switches": 2}).clocks
    worker = helper(7, 101, frame("Data.__getitem__", 8), WORKER, clocks=clocks)
    assert told(job(snapshot(in_loop(0, 4), rank(1, *LOADER, train(10)), worker))) == ("waiting", "working")


def test_what_child_processes_do_is_work() -> None:
    waits = rank(
        1, frame("run", 9, "/usr/lib/python3.11/subprocess.py", library=True), train(12), kernel={"syscall": "wait4"}
    )
    child = helper(7, 101, frame("upload", 8))
    assert told(job(snapshot(in_loop(0, 4), waits, child))) == ("hung", "elsewhere")
    writes = replace(child, files=FileBytes(read_bytes=0, written_bytes=3_000_000))
    assert told(job(snapshot(in_loop(0, 4), waits, writes))) == ("waiting", "working")
    upload = Connection(
        pid=7, namespace="net:[1]", state="ESTABLISHED", local_address="10.0.0.1", local_port=5000,
        remote_address="192.0.2.1", remote_port=443, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=100_000,
        last_sent_ms=0, last_received_ms=0,
    )  # fmt: skip
    sockets = Connections(connections=(*silent(2, 60.0).connections, upload))
    assert told(job(snapshot(in_loop(0, 4), waits, child, connections=sockets))) == ("waiting", "working")


def test_a_run_that_a_rank_has_started_works_for_it() -> None:
    """Rank 1 evaluates in a run of its own, under a second torchrun."""
    waits = rank(
        1, frame("run", 9, "/usr/lib/python3.11/subprocess.py", library=True), train(12), kernel={"syscall": "wait4"}
    )
    agent = helper(300, 101, role="launcher", name="pt_elastic", argv=("torchrun", "evaluate.py"))
    inner = rank(0, train(15, source="score(model)"), world=1, cpu=0.9, pid=301, ppid=300, owner=300)
    assert inner.identity is not None
    inner = replace(inner, identity=replace(inner.identity, master_port=29501), argv=("python3", "evaluate.py"))
    jobs = diagnose(snapshot(in_loop(0, 4), waits, agent, inner, silence=None, connections=silent(2, 60.0))).jobs
    assert {one.script: one.verdict for one in jobs} == {"train.py": "waiting", "evaluate.py": "healthy"}
    assert told(job(snapshot(in_loop(0, 4), waits))) == ("hung", "elsewhere")


@pytest.mark.parametrize(("cpu", "stopped"), [(0.0, True), (0.3, False)])
def test_a_stop_counts_when_it_lasts(cpu: float, stopped: bool) -> None:
    """A program that limits CPU stops and continues a rank several times a second; both looks may fall into a stop."""
    limited = rank(1, train(12), state="T", cpu=cpu, at_start=KernelState(state="T"), progress=steps(3, 4))
    found = job(snapshot(in_loop(0, 4), limited))
    assert any(blockage.kind == "stopped" for blockage in found.blockages) == stopped
    assert (found.verdict == "hung") == stopped


def polling(number: int, loop: Loop, switches: int = 2, **more: Any) -> Process:
    process = rank(
        number,
        frame("wait_for", 44, source="time.sleep(0.5)", loops=(loop,)),
        train(12),
        kernel={"syscall": "clock_nanosleep", "sleep_seconds": 0.3},
        **more,
    )
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    return replace(
        process, clocks=replace(process.clocks, threads=(replace(main, voluntary_switches=switches), *others))
    )


@pytest.mark.parametrize(
    ("slept", "left", "silence", "verdict"),
    [
        (3.0, 12.0, 70.0, "waiting"),
        (3.0, 12.0, 80.0, "hung"),
        (None, 12.0, 70.0, "hung"),
        (3.0, 3597.0, 70.0, "hung"),  # its next attempt comes after the others have given up
    ],
)
def test_a_rank_that_polls_seldom_has_a_few_attempts(
    slept: float | None, left: float, silence: float, verdict: str
) -> None:
    process = polling(1, Loop(line=40, end_line=60, header="while True"))
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, sleep_seconds=left, idle_seconds=slept)
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    assert job(snapshot(in_loop(0, 4), process, silence=silence)).verdict == verdict


@pytest.mark.parametrize(
    ("line", "age", "sleeps"),
    [
        (42, 86.0, True),
        (42, 300.0, False),  # it has slept before, since its last call
        (30, 86.0, False),  # it made its last call before the loop
    ],
)
def test_the_first_sleep_after_a_call_of_its_loop_is_no_attempt(line: int, age: float, sleeps: bool) -> None:
    """A pause once per cycle of training."""
    process = polling(1, Loop(line=40, end_line=60, header="while True"))
    assert isinstance(process.clocks, Clocks) and isinstance(process.stack, Stack)
    main, *others = process.clocks.threads
    main = replace(main, sleep_seconds=65.0, whole_sleep_seconds=150.0, idle_seconds=85.0)
    called = replace(process.stack.threads[0].frames[0], line=line)
    made = Recorded(seq=4, op="all_reduce", age_seconds=age, timeout_seconds=1800.0, frames=(called,))
    record = FlightRecorder(
        source="memory", age_seconds=0.0, groups=(RecordedGroup(name="0", issued=4, completed=made),)
    )
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)), recorder=record)
    (finding, *_) = job(snapshot(rank(0, *c10d("barrier"), train(15)), process, silence=85.0)).findings
    assert ("sleeping for another 1 min 5 s" in finding.summary) is sleeps
    assert ("polling (asleep for 2 min 30 s between attempts)" in finding.summary) is not sleeps


@pytest.mark.parametrize(("timeout", "verdict"), [(1800.0, "hung"), (108_000.0, "waiting")])
def test_a_chosen_timeout_gives_the_attempts_of_an_awaited_rank_more_time(timeout: float, verdict: str) -> None:
    """As for a service that trains once a night. 1800 s is a default of torch."""
    process = polling(1, Loop(line=40, end_line=60, header="while True"))
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, sleep_seconds=3597.0, idle_seconds=3.0)
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    made = Recorded(seq=4, op="all_reduce", age_seconds=80.0, timeout_seconds=timeout)
    record = FlightRecorder(
        source="memory", age_seconds=0.0, groups=(RecordedGroup(name="0", issued=4, completed=made),)
    )
    waiting = replace(rank(0, *c10d("barrier"), train(15)), recorder=record)
    assert job(snapshot(waiting, process, silence=80.0)).verdict == verdict


@pytest.mark.parametrize(
    ("timeout", "silence", "verdict"),
    [
        (600.0, 40.0, "hung"),
        (1800.0, 40.0, "hung"),
        (7200.0, 110.0, "waiting"),
        (7200.0, 130.0, "hung"),
        (86_400.0, 1400.0, "waiting"),
        (86_400.0, 1500.0, "hung"),
        (30 * 86_400.0, 1400.0, "waiting"),
        (30 * 86_400.0, 1500.0, "hung"),  # a day is as much as people wait
        (1e12, 1400.0, "waiting"),
        (RPC_DEFAULT - 60.0, 40.0, "hung"),  # nobody chose it
    ],
)
def test_patience_grows_with_the_timeout_that_somebody_chose(timeout: float, silence: float, verdict: str) -> None:
    stuck = rank(1, frame("fetch", 12), kernel={"syscall": "futex"}, started_seconds_ago=9000.0)
    waits = rank(0, *c10d("barrier"), train(15), kernel={"syscall": "futex", "timeout_seconds": timeout})
    found = job(snapshot(waits, stuck, silence=silence))
    assert found.verdict == verdict
    given = f"with a timeout of {duration(timeout)}" if timeout < 1e9 else "without a timeout"
    why = f"(not earlier, because the ranks wait {given})"
    assert (why in found.findings[0].summary) == (verdict == "waiting")
    # What never ends needs no patience.
    assert job(snapshot(waits, replace(stuck, state="T"), silence=silence)).verdict == "hung"


@pytest.mark.parametrize(("timeout", "verdict"), [(600.0, "hung"), (28_800.0, "waiting")])
def test_a_child_process_that_sleeps_until_its_time_comes_delays_nobody_who_waits_longer(
    timeout: float, verdict: str
) -> None:
    """A simulator sleeps until the next slot. The receive of the learner has a timeout of its own, which the kernel shows."""
    sleeps = KernelThread(
        tid=70, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
        syscall="clock_nanosleep", sleep_seconds=1394.0, whole_sleep_seconds=1478.0,
    )  # fmt: skip
    pipe = AwaitedFile(kind="pipe", name="pipe:[7]", holders=(Holder(pid=70, name="python3", state="S"),))
    asks = rank(1, frame("ask", 43), kernel={"syscall": "read", "files": (pipe,)})
    simulator = helper(
        70, asks.pid, name="python3", clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(sleeps,))
    )
    learner = rank(0, *c10d("recv"), train(15), kernel={"syscall": "futex", "timeout_seconds": timeout})
    assert job(snapshot(learner, asks, simulator, silence=80.0)).verdict == verdict


@pytest.mark.parametrize(("timeout", "verdict"), [(600.0, "hung"), (25_200.0, "waiting")])
def test_a_read_of_a_timer_is_a_sleep(timeout: float, verdict: str) -> None:
    """A retraining every six hours, at a time of the wall clock, with the others at a gate for seven hours."""
    timer = AwaitedFile(kind="other", name="anon_inode:[timerfd]", descriptor=22)
    sleep = {"sleep_seconds": 20_000.0, "whole_sleep_seconds": 21_600.0}
    reads = {"syscall": "read", "files": (timer,), **sleep}
    until = rank(0, frame("until", 42), started_seconds_ago=9000.0, kernel=reads)
    gate = rank(1, *c10d("monitored_barrier"), train(18), kernel={"syscall": "futex", "timeout_seconds": timeout})
    assert job(snapshot(until, gate, silence=300.0)).verdict == verdict


@pytest.mark.parametrize(("others", "verdict"), [((), "waiting"), (c10d("all_reduce"), "hung")])
def test_a_lock_whose_holder_sleeps_for_long_is_hung_only_if_others_wait(
    others: tuple[Frame, ...], verdict: str
) -> None:
    """A service restores its files for 40 minutes with the lock. Ranks without a call give up never."""
    holder = Holder(pid=70, name="python3", state="S", sleeps=(2400.0,))
    lock = AwaitedFile(kind="file", name="/data/cache.lock", holders=(holder,))
    locked = rank(0, frame("block", 37), kernel={"syscall": "flock", "files": (lock,)})
    other = rank(1, *others, frame("block", 41), kernel={"syscall": "futex" if others else "flock", "files": (lock,)})
    assert job(snapshot(locked, other, silence=80.0)).verdict == verdict


@pytest.mark.parametrize(
    ("timeout", "silence", "verdict"), [(20.0, 90.0, "waiting"), (20.0, 110.0, "hung"), (900.0, 90.0, "hung")]
)
@pytest.mark.parametrize("call", ["epoll_wait", "futex"])
def test_a_wait_that_only_its_timeout_ends_is_a_sleep(call: str, timeout: float, silence: float, verdict: str) -> None:
    """`asyncio.sleep`, and `Event.wait` with a timeout."""
    library = (
        ("select", "/usr/lib/python3.11/selectors.py")
        if call == "epoll_wait"
        else ("wait", "/usr/lib/python3.11/threading.py")
    )
    again = Loop(line=11, end_line=13, header="while not done")
    process = rank(1, frame(library[0], 1, library[1]), frame("wait_for", 12, loops=(again,)), kernel={"syscall": call})
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    itself = Holder(pid=process.pid, name="python3", state="S")
    pipe = AwaitedFile(kind="socket", name="socket:[7]", inode=7, holders=(itself,))
    files = (pipe,) if call == "epoll_wait" else ()
    main = replace(main, files=files, timeout_seconds=timeout, idle_seconds=3.0)
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    assert job(snapshot(in_loop(0, 4), process, silence=silence)).verdict == verdict
    # A reply may come at any moment, so its absence shows at once.
    server = Holder(pid=9, name="judge", state="S")
    asks = replace(main, syscall="epoll_wait", files=(pipe, replace(pipe, inode=8, holders=(server,))))
    process = replace(process, clocks=replace(process.clocks, threads=(asks, *others)))
    assert job(snapshot(in_loop(0, 4), process, silence=silence)).verdict == "hung"


@pytest.mark.parametrize(
    ("left", "silence", "verdict"), [(17.0, 90.0, "waiting"), (17.0, 110.0, "hung"), (900.0, 90.0, "hung")]
)
def test_a_child_process_that_sleeps_between_two_attempts_has_a_few(left: float, silence: float, verdict: str) -> None:
    """`until [ -f ready ]; do sleep 20; done` in a shell."""
    child = frame("wait", 9, "/usr/lib/python3.11/subprocess.py")
    process = rank(1, child, frame("fetch", 12), kernel={"syscall": "wait4"})
    sleep = rank(2, pid=7, kernel={"syscall": "clock_nanosleep", "sleep_seconds": left, "idle_seconds": 3.0})
    command = helper(7, 101, clocks=sleep.clocks, stack=Unavailable(reason="not Python"), started_seconds_ago=200.0)
    assert job(snapshot(in_loop(0, 4), process, command, silence=silence)).verdict == verdict


LIBRARY = "/usr/lib/python3.11/threading.py"


@pytest.mark.parametrize(
    ("frames", "kernel"),
    [
        (("wait", "wait", "run", "_bootstrap"), {"syscall": "futex", "timeout_seconds": 20.0}),  # threading.Timer
        (("wait", "wait"), {"syscall": "futex", "timeout_seconds": 20.0}),  # it looks every 20 s
        ((), {"syscall": "clock_nanosleep", "sleep_seconds": 17.0}),
    ],
)
def test_another_thread_that_sleeps_may_end_a_wait(frames: tuple[str, ...], kernel: dict[str, object]) -> None:
    """The main thread waits for an event. The other thread sets it if what it looks for is there, a few times at most."""
    process = rank(
        1,
        frame("wait", 320, LIBRARY, library=True),
        frame("load", 12, source="ready.wait()"),
        kernel={"syscall": "futex"},
    )
    stack, clocks = process.stack, process.clocks
    assert isinstance(stack, Stack)
    assert isinstance(clocks, Clocks)
    sleeping = [frame(name, 1, LIBRARY, library=True) for name in frames]
    if len(frames) < 3:
        sleeping.append(frame("look", 30, loops=(Loop(line=29, end_line=31, header="while not path.exists()"),)))
    other = PythonThread(tid=7, name="Thread-1", active=False, owns_gil=False, frames=tuple(sleeping))
    sleeper = replace(clocks.threads[0], tid=7, idle_seconds=3.0, **{"timeout_seconds": None, **kernel})
    both = replace(stack, threads=(*stack.threads, other))
    process = replace(
        process, clocks=replace(clocks, threads=(*clocks.threads, sleeper)), stack=both, stack_before=both
    )
    for silence, verdict in ((90.0, "waiting"), (110.0, "hung")):
        found = job(snapshot(in_loop(0, 4), process, silence=silence))
        assert found.verdict == verdict
        assert "another thread sleeps for 20 s" in found.findings[0].evidence[1].text


@pytest.mark.parametrize(
    ("call", "verdict"),
    [("wait4", "waiting"), ("futex", "waiting"), ("clock_nanosleep", "waiting"), ("openat", "hung")],
)
def test_another_process_at_work_may_end_a_wait_for_something_unknown(call: str, verdict: str) -> None:
    """A child process or a library's thread asks it, or it makes a file for which the rank looks."""
    process = rank(
        1, frame("ask", 7, "/site-packages/zmq/socket.py", library=True), frame("judge", 9), kernel={"syscall": call}
    )
    found = job(snapshot(in_loop(0, 4), process, silence=90.0))
    assert found.verdict == "hung"
    busy = Holder(pid=9, name="judge", state="R", works=True)
    found = job(snapshot(in_loop(0, 4), replace(process, others_at_work=(busy,)), silence=90.0))
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("loop", "verdict"),
    [
        (Loop(line=43, end_line=44, header="while True"), "hung"),  # there is nothing in it but the sleep
        (Loop(line=43, end_line=45, header="while True"), "waiting"),
        (Loop(line=43, end_line=44, header="while not done()"), "waiting"),
    ],
)
def test_no_other_process_ends_a_loop_that_only_sleeps(loop: Loop, verdict: str) -> None:
    """The verdict of a hang was `waiting` for as long as a shell in the directory of the script was busy."""
    process, busy = polling(1, loop), Holder(pid=9, name="bash", state="R", works=True)
    others = replace(process, others_at_work=(busy,), others_asleep=(replace(busy, works=False, sleeps=(60.0,)),))
    assert job(snapshot(in_loop(0, 4), others, silence=60.0)).verdict == verdict


def test_another_thread_may_do_the_work_of_a_rank_whose_main_thread_only_sleeps() -> None:
    """A server: its thread waits for a request of a process that is at work."""
    process = polling(1, Loop(line=43, end_line=44, header="while True"))
    stack, clocks = process.stack, process.clocks
    assert isinstance(stack, Stack) and isinstance(clocks, Clocks)
    tid = process.pid + 1
    serve = replace(
        stack.threads[0], tid=tid, name="serve", frames=(frame("serve", 20, source="request = requests.recv()"),)
    )
    stack = replace(stack, threads=(*stack.threads, serve))
    kernel = replace(clocks.threads[0], tid=tid, syscall="read", sleep_seconds=None)
    server = replace(
        process,
        stack=stack,
        stack_before=stack,
        clocks=replace(clocks, threads=(*clocks.threads, kernel)),
        others_at_work=(Holder(pid=9, name="feeder", state="R", works=True),),
    )
    assert job(snapshot(in_loop(0, 4), server, silence=60.0)).verdict == "waiting"


@pytest.mark.parametrize(("works", "verdict"), [(True, "waiting"), (False, "hung")])
@pytest.mark.parametrize("kind", ["pipe", "shared-memory"])
def test_another_process_may_end_a_wait(kind: str, works: bool, verdict: str) -> None:
    """`multiprocessing.Queue`: one rank reads its pipe, the others wait for its lock."""
    actor = Holder(pid=9, name="actor", state="S", works=works)
    file = AwaitedFile(kind=kind, name="pipe:[7]", holders=(actor,))
    call = "read" if kind == "pipe" else "futex"
    process = rank(1, frame("get", 103, "/lib/multiprocessing/queues.py", library=True), frame("learn", 9))
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, syscall=call, files=(file,))
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    assert job(snapshot(in_loop(0, 4), process, silence=90.0)).verdict == verdict


@pytest.mark.parametrize(
    ("call", "line", "awaited"),
    [
        ("Queue.get", "self.not_empty.wait()", "for an entry of an empty queue"),
        ("Queue.put", "self.not_full.wait()", "for room in a full queue"),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_queue_whose_thread_has_ended_has_nobody_at_its_other_end(
    ended: bool, call: str, line: str, awaited: str
) -> None:
    """Each rank has a thread at its queue; that of rank 1 has ended by an exception, or waits for a file server."""
    decodes = frame("decode", 15)
    fills = PythonThread(tid=900, name="prefetch", active=False, owns_gil=False, frames=(decodes,))
    queue = frame(call, 171, "/lib/python3.11/queue.py", library=True, source=line)
    waits = rank(1, queue, frame("step", 18), kernel={"syscall": "futex", "timed": False})
    assert isinstance(waits.stack, Stack)
    with_thread = replace(waits.stack, threads=(*waits.stack.threads, fills))
    waits = waits if ended else replace(waits, stack=with_thread, stack_before=with_thread)
    peer = in_loop(0, 4)
    assert isinstance(peer.stack, Stack)
    peer = replace(peer, stack=replace(peer.stack, threads=(*peer.stack.threads, fills)))
    found = job(snapshot(peer, waits, silence=90.0))
    finding = found.findings[0]
    assert (found.verdict, finding.culprits) == ("hung", (1,))
    texts = [each.text for each in finding.evidence]
    assert (f"as the only Python thread, {awaited}" in finding.summary) is ended
    assert ("rank 0 has a thread prefetch, and it has none" in texts) is ended
    assert ("No thread of the rank is at the other end of the queue" in finding.remedy) is ended
    assert ("--patience" in finding.remedy) is not ended


def test_ranks_at_a_full_queue_do_not_wait_for_each_other() -> None:
    """All of them have its semaphore, and wait; the process that should read it does not."""
    sharers = tuple(Holder(pid=pid, name="python", state="S") for pid in (9, 100, 101))
    line = "if not self._sem.acquire(block, timeout):"
    puts = frame("Queue.put", 89, "/lib/python3.11/multiprocessing/queues.py", library=True, source=line)
    processes = []
    for number in range(2):
        others = tuple(holder for holder in sharers if holder.pid != 100 + number)
        file = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", holders=others)
        kernel = {"syscall": "futex", "files": (file,), "timed": False}
        processes.append(rank(number, puts, frame("report", 9), kernel=kernel))
    finding = job(snapshot(*processes, silence=90.0)).findings[0]
    assert "waiting for room in a full queue that pid 9 (python) can take from" in finding.summary
    assert finding.remedy.startswith("Find out why nothing is taken from the queue: look at pid 9 (python).")
    assert finding.commands == ("py-spy dump --pid 9",)
    by_parent = [replace(process, ppid=9) for process in processes]  # nobody else can read the queue
    assert job(snapshot(*by_parent, silence=90.0)).findings[0].commands == ("py-spy dump --pid 9",)


@pytest.mark.parametrize(("state", "remedy"), [("S", "Find out why nothing is taken"), ("T", RESUME["signal"])])
def test_a_stopped_reader_of_a_full_queue_is_continued(state: str, remedy: str) -> None:
    line = "if not self._sem.acquire(block, timeout):"
    puts = frame("Queue.put", 89, "/lib/python3.11/multiprocessing/queues.py", library=True, source=line)
    reader = Holder(pid=9, name="python", state=state)
    kernel = {
        "syscall": "futex",
        "files": (AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", holders=(reader,)),),
    }
    finding = job(snapshot(in_loop(0, 4), rank(1, puts, frame("report", 9), kernel=kernel), silence=90.0)).findings[0]
    assert finding.remedy.startswith(remedy)


def test_a_rank_at_the_exit_of_its_program_has_no_line() -> None:
    files = ("popen_fork.py", "process.py", "util.py")
    calls = zip(("Popen.wait", "BaseProcess.join", "_exit_function"), files, strict=True)
    frames = [frame(name, 9, f"/lib/python3.11/multiprocessing/{file}", library=True) for name, file in calls]
    waits = rank(1, *frames, kernel={"syscall": "wait4"})
    assert "waiting for a child process at the exit of its program" in str(job(snapshot(in_loop(0, 4), waits)).findings)


def test_an_event_of_another_process_is_no_lock() -> None:
    waits = frame("Condition.wait", 268, "/lib/python3.11/multiprocessing/synchronize.py", library=True)
    sharer = Holder(pid=9, name="python", state="S")
    file = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", holders=(sharer,))
    kernel = {"syscall": "futex", "files": (file,), "timed": False}
    finding = job(snapshot(in_loop(0, 4), rank(1, waits, frame("meet", 9), kernel=kernel), silence=90.0)).findings[0]
    assert "waiting for a condition in shared memory that pid 9 (python) can notify" in finding.summary
    assert finding.remedy == "Find out why no process notifies the condition or sets the event: look at pid 9 (python)."


def test_ranks_at_locks_in_shared_memory_may_hold_each_others() -> None:
    """mp.Lock: each has one of two, and waits for the other. The parent has both, too, and waits for their ends."""
    takes = frame("Lock.__enter__", 95, "/lib/python3.11/multiprocessing/synchronize.py", library=True)
    processes = []
    for number in range(2):
        holders = tuple(Holder(pid=pid, name="python", state="S") for pid in (50, 101 - number))
        file = AwaitedFile(kind="shared-memory", name=f"/dev/shm/sem.{number}", holders=holders)
        processes.append(
            rank(number, takes, frame("report", 9), kernel={"syscall": "futex", "files": (file,), "timed": False})
        )
    finding = job(snapshot(*processes, silence=90.0)).findings[0]
    assert finding.culprits == (0, 1)
    assert "pid 101 (python)" in finding.summary


def test_a_rank_that_waits_for_a_command_shows_where_that_waits() -> None:
    """A shell has no Python stack, but the kernel tells in which call it is, and with whom it is connected."""
    waits = rank(1, frame("wait", 1264, "/lib/python3.11/subprocess.py", library=True), frame("upload", 9))
    reads = AwaitedFile(kind="socket", name="socket:[77]", inode=77, descriptor=3)
    main = KernelThread(
        tid=9, name="bash", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, syscall="read",
        files=(reads,), timed=False,
    )  # fmt: skip
    shell = helper(9, 101, name="bash", argv=("bash", "up.sh"), stack=Unavailable(reason="no Python"),
                   clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,)))  # fmt: skip
    link = replace(silent(2, 90.0).connections[0], pid=9, inode=77, remote_address="192.0.2.1", remote_port=443)
    sockets = Connections(connections=(*silent(2, 90.0).connections, link))
    finding = job(snapshot(in_loop(0, 4), waits, shell, connections=sockets)).findings[0]
    texts = [each.text for each in finding.evidence]
    assert "child process 9 (bash) is in the system call read, on a connection to 192.0.2.1:443" in texts
    assert finding.commands == ("ps -o pid,ppid,stat,wchan:20,etime,args -p 9",)


def test_the_resource_tracker_of_multiprocessing_is_no_child_for_which_a_rank_waits() -> None:
    waits = rank(1, frame("Process.join", 149, "/lib/python3.11/multiprocessing/process.py", library=True), frame("play", 9),
                 kernel={"syscall": "wait4", "timed": False})  # fmt: skip
    reads = KernelThread(tid=9, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
                         syscall="read", timed=False)  # fmt: skip
    argv = ("/usr/bin/python3", "-B", "-c", "from multiprocessing.resource_tracker import main;main(12)")
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(reads,))
    tracker = helper(9, 101, name="python3", stack=Unavailable(reason="not read"), argv=argv, clocks=clocks)
    clocks = replace(clocks, threads=(replace(reads, tid=10),))
    works = helper(10, 101, name="python3", stack=Unavailable(reason="not read"), clocks=clocks)
    finding = job(snapshot(in_loop(0, 4), waits, tracker, works)).findings[0]
    children = [each.text for each in finding.evidence if each.text.startswith("child process")]
    assert children == ["child process 10 (python3) is in the system call read"]
    assert finding.commands == ("py-spy dump --pid 10",)


@pytest.mark.parametrize(
    ("replies", "sleeps", "verdict"), [(False, None, "waiting"), (True, None, "hung"), (True, 50.0, "waiting")]
)
def test_the_reply_to_a_poll_is_not_what_a_rank_waits_for(replies: bool, sleeps: float | None, verdict: str) -> None:
    """A rank polls the manager of a pool for the results of its workers, which may sleep between two of them."""
    manager = Holder(pid=9, name="python3", state="S", replies=replies)
    file = AwaitedFile(kind="socket", name="socket:[7]", holders=(manager,))
    process = rank(1, frame("recv", 250, "/lib/multiprocessing/connection.py", library=True), frame("tokenize", 9))
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, syscall="read", files=(file,), timed=False, idle_seconds=0.02)
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    worker = KernelThread(
        tid=10, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, sleep_seconds=sleeps,
        idle_seconds=0.0,
    )  # fmt: skip
    workers = [
        helper(9, process.pid),
        helper(10, process.pid, clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(worker,))),
    ]
    assert job(snapshot(in_loop(0, 4), process, *workers, silence=90.0)).verdict == verdict


def test_a_debugger_on_a_socket_waits_for_input() -> None:
    """`sys.breakpointhook` may name a class that listens instead of a terminal. A server would wait for requests."""
    listener = AwaitedFile(kind="socket", name="socket:[7]", inode=7)
    listening = (frame("accept", 294, "/usr/lib/python3.11/socket.py", library=True), frame("serve", 14))
    for source, verdict in (("breakpoint()", "hung"), ("serve(port)", "waiting")):
        kernel = {"syscall": "accept4", "files": (listener,)}
        waits = rank(1, *listening, frame("score", 31, source=source), kernel=kernel)
        sockets = silent(2, 20.0)
        one = replace(
            sockets.connections[-1], pid=waits.pid, inode=7, state="LISTEN", local_address="127.0.0.1", local_port=4444
        )
        found = job(snapshot(in_loop(0, 4), waits, connections=Connections(connections=(*sockets.connections, one))))
        assert (found.verdict, "127.0.0.1:4444" in found.findings[0].summary) == (verdict, True)


EVENTS = AwaitedFile(kind="other", name="anon_inode:[eventfd]", descriptor=24)


@pytest.mark.parametrize(
    ("kernel", "waits"),
    [
        ({"syscall": "rt_sigtimedwait"}, "waiting for a signal"),
        (
            {"syscall": "rt_sigtimedwait", "timeout_seconds": 90.0, "idle_seconds": 30.0},
            "sleeping for another 1 min 0 s",
        ),
        ({"syscall": "read", "files": (EVENTS,)}, "reading anon_inode:[eventfd] (fd 24)"),
        ({"syscall": "9999", "wchan": "do_wait_there"}, "sleeping"),
    ],
)
def test_a_wait_for_anything_else_has_its_name(kernel: dict[str, object], waits: str) -> None:
    found = job(snapshot(in_loop(0, 4), rank(1, frame("hold", 9), kernel=kernel), silence=30.0))
    assert f"which is {waits} at" in found.findings[0].summary


def test_the_next_look_comes_when_a_known_sleep_is_over() -> None:
    """Its end and that look are at different times."""
    kernel = {"syscall": "clock_nanosleep", "sleep_seconds": 21.0}
    once, polls = (
        rank(1, frame("hold", 9), kernel=kernel),
        polling(1, Loop(line=40, end_line=60, header="while True")),
    )
    (known,) = job(snapshot(in_loop(0, 4), once)).findings
    assert known.remedy == "This sleep ends in 21 s. Run hangdoc again in 31 s, and compare."
    others = (Holder(pid=9, name="exporter", state="S", works=True),)
    (unknown,) = job(snapshot(in_loop(0, 4), replace(polls, others_at_work=others))).findings
    assert unknown.remedy.endswith("Run hangdoc again in a few minutes, and compare.")


POOL = "/usr/lib/python3.11/concurrent/futures/thread.py"


@pytest.mark.parametrize(
    "task", [(frame("ask", 70),), (frame("get", 70, "/site-packages/requests/api.py"), frame("run", 58, POOL))]
)
@pytest.mark.parametrize("works", [True, False])
def test_the_exit_of_a_pool_waits_for_its_threads_and_not_for_a_lock(works: bool, task: tuple[Frame, ...]) -> None:
    """The main thread is in `with ThreadPoolExecutor() as pool:`, and a thread of the pool waits for a reply."""
    frames = tuple(frame(name, 1, "/usr/lib/python3.11/threading.py") for name in ("_wait_for_tstate_lock", "join"))
    main = (*frames, frame("judge", 12, source="with ThreadPoolExecutor() as pool:"))
    process = rank(1, *main, kernel={"syscall": "futex"})
    assert isinstance(process.clocks, Clocks)
    service = Holder(pid=9, name="judge", state="S", works=works)
    socket = AwaitedFile(kind="socket", name="socket:[7]", inode=7, holders=(service,))
    asks = replace(process.clocks.threads[0], tid=7, syscall="poll", files=(socket,))
    in_pool = PythonThread(tid=7, name="pool", active=False, owns_gil=False, frames=task)
    python = replace(stack(*main), threads=(*stack(*main).threads, in_pool))
    clocks = replace(process.clocks, threads=(*process.clocks.threads, asks))
    process = replace(process, clocks=clocks, stack=python, stack_before=python)
    sockets = silent(2, 60.0)
    service_socket = replace(
        sockets.connections[-1], pid=process.pid, inode=7, remote_address="192.0.2.1", remote_port=80
    )
    sockets = Connections(connections=(*sockets.connections, service_socket))
    found = job(snapshot(in_loop(0, 4), process, connections=sockets))
    assert (found.verdict, found.findings[0].code) == ("waiting" if works else "hung", "HD202")
    assert "a reply from pid 9 (judge" in found.findings[0].summary


def test_ranks_that_all_poll_may_be_idle() -> None:
    """None waits for another one, and nothing shows whether what they look for will come."""
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(lock)")
    found = job(snapshot(polling(0, looks), polling(1, looks)))
    assert (found.verdict, found.blockages[0].kind, found.findings[0].severity) == ("waiting", "idle", "info")
    assert job(snapshot(polling(0, looks), polling(1, looks), silence=5.0)).verdict == "waiting"
    # A process of the job that is no rank may make what they look for.
    busy = Holder(pid=9, name="prepare", state="R", works=True)
    beside = [replace(polling(number, looks), others_at_work=(busy,)) for number in range(2)]
    found = job(snapshot(*beside))
    assert (found.verdict, found.findings[0].severity, found.findings[0].role) == ("waiting", "info", "involved")
    assert "pid 9 (prepare, at work)" in found.findings[0].evidence[1].text
    # A sleep between two epochs ends by itself.
    epochs = Loop(line=40, end_line=60, header="for epoch in range(9)", counters=("epoch",), start=0)
    assert job(snapshot(polling(0, epochs), polling(1, epochs))).verdict == "waiting"


@pytest.mark.parametrize("monitored", [True, False])
def test_a_process_in_the_directory_does_not_do_the_work_of_a_dead_rank(monitored: bool) -> None:
    """torchrun would have ended the run: there, a rank that is gone has ended without an error."""
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(done)")
    busy = Holder(pid=9, name="hash", state="R", works=True)
    alive = [replace(polling(number, looks, world=3), others_at_work=(busy,)) for number in (0, 2)]
    line = Launch(tool="torchrun", nproc_per_node="3")
    launcher = Process(
        pid=50, ppid=1, role="launcher", name="python", argv=("torchrun",), state="S", started_seconds_ago=100.0,
        launch=line if monitored else None,
    )  # fmt: skip
    found = job(snapshot(*alive, launcher))
    if monitored:
        assert found.verdict == "waiting"
        return
    assert (found.verdict, found.findings[0].code, found.findings[0].culprits) == ("hung", "HD301", (1,))
    assert "may end it" not in str(found.findings)


@pytest.mark.parametrize(("seconds", "verdict"), [(35.0, "waiting"), (20.0, "hung")])
def test_a_process_of_the_job_that_sleeps_may_bring_what_a_rank_polls_for(seconds: float, verdict: str) -> None:
    """An exporter writes a file every 35 s. It has two turns, and then the wait is old."""
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(lock)")
    exporter = Holder(pid=9, name="exporter", state="S", sleeps=(seconds,))
    found = job(snapshot(replace(polling(0, looks), others_asleep=(exporter,)), in_loop(1, 4)))
    assert (found.verdict, found.findings[0].culprits) == (verdict, (0,))
    texts = [one.text for one in found.findings[0].evidence]
    text = f"sleeps for {seconds:.0f} s at a time, and gets 2 of these sleeps to end it"
    assert any(f"pid 9 (exporter), in its process group or directory, {text}" in each for each in texts)
    assert "it polls in the loop `while not os.path.exists(lock)`" in texts


def test_a_process_that_sleeps_for_a_moment_gets_no_turns() -> None:
    """A thread of Gloo in a rank of another run."""
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(lock)")
    other = Holder(pid=9, name="python3", state="S", sleeps=(0.01,))
    found = job(snapshot(replace(polling(0, looks), others_asleep=(other,)), in_loop(1, 4)))
    assert "at a time" not in str(found.findings)


@pytest.mark.parametrize(
    ("path", "commands"),
    [
        ("'/data/my vocab.json'", ("ls -l '/data/my vocab.json'",)),
        ("'vocab.json'", ("py-spy dump --pid 100",)),
        ("'/root/<redacted>/vocab.json'", ("py-spy dump --pid 100",)),
    ],
)
def test_who_polls_for_a_file_is_told_to_look_at_it(path: str, commands: tuple[str, ...]) -> None:
    """Where the path is relative, a shell would look in another directory. Of one that was not stored as it is, there is no
    command."""
    looks = Loop(line=40, end_line=60, header="while os.path.exists(lock)")
    module = Interpreter(environment={}, globals=(local("lock", path),))
    (finding, *_) = job(snapshot(replace(polling(0, looks), interpreter=module), in_loop(1, 4))).findings
    assert finding.remedy.startswith("Find out which process makes or removes the file for which rank 0 looks.")
    assert finding.commands == commands


@pytest.mark.parametrize("beside", [True, False])
def test_a_lock_that_was_left_over_has_its_age(beside: bool) -> None:
    looks = Loop(line=40, end_line=60, header="while os.path.exists(lock)")
    lock = AwaitedFile(kind="in-the-way", name="/data/lock", changed_seconds_ago=7200.0)
    at_work = (Holder(pid=9, name="exporter", state="R", works=True),) if beside else ()
    module = Interpreter(environment={}, globals=(local("lock", "'/<redacted>/lock'"),))
    polls = replace(polling(0, looks), polled_lock=lock, others_at_work=at_work, interpreter=module)
    found = job(snapshot(polls, in_loop(1, 4)))
    assert found.findings[0].commands == ("ls -l /data/lock",)
    assert (found.verdict, found.findings[0].culprits) == ("waiting" if beside else "hung", (0,))
    assert found.findings[0].remedy.startswith("If what made /data/lock has ended, remove it. ") is not beside
    (text,) = (one.text for one in found.findings[0].evidence if "still there" in one.text)
    assert text.startswith("/data/lock is still there, and was made or changed 2 h 0 min ago")
    assert text.endswith("2 h 0 min ago" if beside else "; another run counts only if it was started before")


def test_what_a_rank_polls_for_may_be_a_variable_of_the_module() -> None:
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(lock)")
    module = Interpreter(environment={}, globals=(local("lock", "'/data/vocab.json'"), local("step", 3)))
    found = job(snapshot(replace(polling(0, looks), interpreter=module), in_loop(1, 4)))
    texts = [one.text for one in found.findings[0].evidence]
    assert "it polls in the loop `while not os.path.exists(lock)`; `lock` is '/data/vocab.json'" in texts


def test_a_rank_that_serves_requests_is_no_hang() -> None:
    listening = Connection(
        pid=100, namespace="net:[1]", state="LISTEN", local_address="0.0.0.0", local_port=8080,  # noqa: S104
        remote_address="0.0.0.0", remote_port=0, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=None,  # noqa: S104
        last_sent_ms=None, last_received_ms=None, inode=77,
    )  # fmt: skip
    socket = AwaitedFile(kind="socket", name="socket:[77]", descriptor=9, inode=77)
    serves = rank(0, frame("select", 9, "/usr/lib/python3.11/selectors.py", library=True), train(12),
                  kernel={"syscall": "poll", "files": (socket,)})  # fmt: skip
    follows = rank(1, *c10d("broadcast"), train(15))
    sockets = Connections(connections=(*silent(2, 600.0).connections, listening))
    found = job(snapshot(serves, follows, connections=sockets))
    assert (found.verdict, found.findings[0].code, found.findings[0].severity) == ("waiting", "HD602", "info")
    assert "0.0.0.0:8080" in found.findings[0].summary
    # Its answers take 25 s each: the other ranks wait for minutes, and it for no longer than since the last byte.
    for silence, verdict in ((25_000, "waiting"), (45_000, "hung")):
        elsewhere = replace(
            listening, state="ESTABLISHED", remote_address="192.0.2.1", remote_port=443, last_sent_ms=silence,
            last_received_ms=silence,
        )  # fmt: skip
        sockets = Connections(connections=(*silent(2, 600.0).connections, elsewhere))
        found = job(snapshot(serves, follows, connections=sockets))
        assert found.verdict == verdict
        assert "waiting for a reply from 192.0.2.1:443" in found.findings[0].summary
    sockets = Connections(connections=(*silent(2, 600.0).connections, replace(elsewhere, send_queue_bytes=3_000_000)))
    found = job(snapshot(serves, follows, connections=sockets))
    assert "sending data to 192.0.2.1:443" in found.findings[0].summary


@pytest.mark.parametrize(
    ("timeout", "silence", "verdict"),
    [
        (None, 75.0, "hung"),
        (1200.0, 75.0, "waiting"),
        (1200.0, 605.0, "hung"),
        (60.0, 46.0, "hung"),  # it may try again for ever
        (5.0, 75.0, "hung"),  # it does
        (2_147_483.0, 75.0, "hung"),  # the greatest one of poll(2): nobody chose it
    ],
)
def test_a_request_has_the_time_that_somebody_gave_it(timeout: float | None, silence: float, verdict: str) -> None:
    """Its server checks something every nine seconds, and writes a line to a log that it opens and closes."""
    sleeps = Holder(pid=900, name="lease", state="S", sleeps=(9.0,), waits_for_events=True)
    reply = AwaitedFile(kind="socket", name="socket:[7]", descriptor=9, inode=7, holders=(sleeps,))
    connection = Connection(
        pid=100, namespace="net:[1]", state="ESTABLISHED", local_address="127.0.0.1", local_port=4000,
        remote_address="127.0.0.1", remote_port=8080, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=None,
        last_sent_ms=round(silence * 1000), last_received_ms=None, inode=7,
    )  # fmt: skip
    asks = rank(0, frame("main", 6), kernel={"syscall": "poll", "timeout_seconds": timeout, "files": (reply,)})
    asks = replace(asks, started_seconds_ago=9000.0)
    sockets = Connections(connections=(*silent(2, 1000.0).connections, connection))
    found = job(snapshot(asks, rank(1, *c10d("barrier"), train(15)), connections=sockets))
    assert found.verdict == verdict
    if verdict == "hung":
        is_limited = timeout is not None and silence <= timeout < 86_400.0
        assert ("(timeout" in found.findings[0].summary) is is_limited
        assert ("Give the request a timeout" in found.findings[0].remedy) is not is_limited


def test_nobody_waits_longer_for_a_rank_than_it_is_there() -> None:
    late = replace(
        rank(1, frame("load", 3), train(12), kernel={"syscall": "clock_nanosleep"}), started_seconds_ago=23.0
    )
    found = job(snapshot(in_loop(0, 4), late, silence=59.0))
    assert (found.verdict, found.findings[0].severity) == ("waiting", "info")


def test_a_pipe_of_which_nobody_else_holds_the_other_end_never_ends() -> None:
    def reads(*holders: int) -> Process:
        pipe = AwaitedFile(
            kind="pipe",
            name="pipe:[7]",
            descriptor=5,
            holders=tuple(Holder(pid=pid, name="x", state="S") for pid in holders),
        )
        return rank(1, train(12), kernel={"syscall": "read", "wchan": "anon_pipe_read", "files": (pipe,)})

    young = job(snapshot(in_loop(0, 4), reads(101), silence=2.0))
    assert (young.verdict, young.findings[0].code) == ("hung", "HD202")
    assert job(snapshot(in_loop(0, 4), reads(9), silence=2.0)).verdict == "waiting"
    assert (
        job(snapshot(in_loop(0, 4), reads(), silence=2.0)).verdict == "waiting"
    )  # held by a process outside the container
    orphan = job(snapshot(in_loop(0, 4), replace(reads(101), launcher_gone=True), silence=2.0))
    assert [one.code for one in orphan.findings] == ["HD305"]
    assert (orphan.findings[0].culprits, orphan.findings[0].victims) == ((1,), (0,))
    assert "the launcher is gone, and rank 1 is waiting for data from a pipe" in orphan.findings[0].summary


@pytest.mark.parametrize(("kind", "verdict"), [("file", "hung"), ("pipe", "unknown")])
def test_ranks_without_a_group_may_have_no_job(kind: str, verdict: str) -> None:
    """Nothing is known of a worker that reads from a queue's pipe; a file that does not answer blocks its work."""

    def reads(number: int) -> Process:
        file = AwaitedFile(kind=kind, name="x", descriptor=5, holders=(Holder(pid=9, name="x", state="S"),))
        kernel = {"syscall": "read", "files": (file,), "timed": False, "idle_seconds": 60.0}
        process = rank(number, train(12), kernel=kernel)
        assert isinstance(process.clocks, Clocks)
        main = tuple(one for one in process.clocks.threads if one.tid == process.pid)
        return replace(process, clocks=replace(process.clocks, threads=main))

    assert job(snapshot(reads(0), reads(1), silence=None)).verdict == verdict


@pytest.mark.parametrize(
    ("timed", "woken", "other_woken", "verdict"),
    [
        (False, 4.0, None, "waiting"),  # what it waits for came four seconds ago
        (False, 59.0, None, "hung"),
        (True, 4.0, None, "hung"),  # woken by its own timer
        (None, 4.0, None, "hung"),
        (False, 4.0, 59.0, "waiting"),
        (False, 4.0, 4.02, "hung"),  # an observer has woken both
    ],
)
def test_a_wait_begins_anew_when_what_it_waits_for_comes(
    timed: bool | None, woken: float, other_woken: float | None, verdict: str
) -> None:
    process = rank(1, train(12), kernel={"syscall": "futex", "timed": timed, "idle_seconds": woken})
    assert isinstance(process.clocks, Clocks)
    other = () if other_woken is None else (replace(process.clocks.threads[0], tid=7, idle_seconds=other_woken),)
    process = replace(process, clocks=replace(process.clocks, threads=(*process.clocks.threads, *other)))
    assert job(snapshot(in_loop(0, 4), process, silence=60.0)).verdict == verdict


@pytest.mark.parametrize(("call", "verdict"), [("futex", "waiting"), ("clock_nanosleep", "hung")])
def test_a_thread_that_is_fed_may_end_the_wait_of_another(call: str, verdict: str) -> None:
    """The main thread waits with a timeout, and a thread that gets data every ten seconds puts them into its queue."""
    process = rank(1, train(12), kernel={"syscall": call, "timed": True, "idle_seconds": 0.5})
    assert isinstance(process.clocks, Clocks)
    own = process.clocks.threads[0]
    feeder = replace(own, tid=7, syscall="recvfrom", timed=False, idle_seconds=4.0)
    receives = PythonThread(tid=7, name="feed", active=False, owns_gil=False, frames=(frame("feed", 70),))
    python = replace(stack(train(12)), threads=(*stack(train(12)).threads, receives))
    process = replace(process, clocks=replace(process.clocks, threads=(own, feeder)), stack=python, stack_before=python)
    assert job(snapshot(in_loop(0, 4), process, silence=60.0)).verdict == verdict


@pytest.mark.parametrize(("age", "verdict"), [(4.0, "waiting"), (50.0, "hung")])
def test_a_wait_for_a_child_is_not_older_than_the_child(age: float, verdict: str) -> None:
    waits = frame("_wait", 9, "/usr/lib/python3.11/subprocess.py")
    process = rank(1, waits, train(12), kernel={"syscall": "clock_nanosleep", "timed": True})
    tool = replace(helper(9, 101), started_seconds_ago=age, stack=Unavailable(reason="not Python"))
    assert job(snapshot(in_loop(0, 4), process, tool, silence=60.0)).verdict == verdict


@pytest.mark.parametrize(("states", "verdict"), [("", "hung"), (None, "waiting"), ("S", "waiting"), ("T", "hung")])
def test_a_lock_file_that_no_process_releases(states: str | None, verdict: str) -> None:
    """None holds it, it could not be seen who does, pid 9 does, or pid 9 does and is stopped."""
    held = None if states is None else tuple(Holder(pid=9, name="x", state=state) for state in states)
    file = AwaitedFile(kind="file", name="/data/x.lock", holders=held)
    waits = rank(1, train(12), kernel={"syscall": "flock", "files": (file,)})
    found = job(snapshot(in_loop(0, 4), waits, silence=2.0))
    assert (found.verdict, found.findings[0].code) == (verdict, "HD202")


@pytest.mark.parametrize(("threads", "verdict"), [(1, "hung"), (2, "waiting")])
def test_a_rank_that_holds_the_lock_on_a_file_waits_for_itself(threads: int, verdict: str) -> None:
    """If it has another thread in the user's code, that thread may release the lock."""
    file = AwaitedFile(kind="file", name="/data/x.lock", holders=(Holder(pid=101, name="x", state="S"),))
    waits = rank(1, train(12), kernel={"syscall": "flock", "files": (file,)})
    other = PythonThread(tid=7, name="saver", active=False, owns_gil=False, frames=(frame("save", 70),))
    python = replace(stack(train(12)), threads=(*stack(train(12)).threads, other)[:threads])
    waits = replace(waits, stack=python, stack_before=python)
    found = job(snapshot(in_loop(0, 4), waits, silence=2.0))
    assert (found.verdict, found.findings[0].code) == (verdict, "HD304")


def test_counters_at_the_header_of_a_loop() -> None:
    """Index 9 at the `for` line means that ten rounds are done and the next element is being fetched."""
    fetching = rank(0, frame("rows", 44), train(10, locals=(local("step", 9),)), cpu=0.9, progress=steps(9, 9))
    inside = rank(1, *c10d("all_reduce"), train(15, locals=(local("step", 9),)))
    assert [view.batches_done for view in job(snapshot(fetching, inside)).ranks] == [10, 9]


def test_a_number_of_batches_is_as_old_as_the_variables_that_count_them() -> None:
    """Two ranks in lock step were read 5 s apart, and one seemed to be 21 batches behind."""
    now = rank(0, *c10d("all_reduce"), train(15, locals=(local("step", 54),)))
    earlier = rank(1, *c10d("all_reduce"), train(15, locals=(local("step", 33),)), deep_seconds_ago=5.0)
    views = job(snapshot(now, earlier)).ranks
    assert [(view.batches_done, view.batches_seconds_ago) for view in views] == [(54, 0.0), (33, 5.0)]


def stale(seconds: float = 3.0, **more: object) -> Process:
    """Rank 1 was read in a barrier some seconds ago, and has run since."""
    return rank(1, *c10d("barrier"), train(25), deep_seconds_ago=seconds, **more)  # type: ignore[arg-type]


def test_an_old_stack_is_not_taken_for_the_present() -> None:
    """The same two stacks are a mismatch where both are of now."""
    waits = rank(0, *c10d("all_reduce"), train(15))
    assert job(snapshot(waits, stale(0.0))).verdict == "hung"
    found = job(snapshot(waits, stale()), patience=1.0)
    assert told(found) == ("waiting", "working")
    view = found.ranks[1]
    assert (view.label, view.operation, view.stack_seconds_ago) == ("computing", None, 3.0)
    assert view.where is not None  # where it was
    assert "it has run since its stack was read 3 s ago" in found.findings[0].summary


@pytest.mark.parametrize("state", ["idle", "busy", "endless"])
def test_no_hang_follows_from_old_stacks(state: str) -> None:
    """Whatever its clocks say and however long the others have waited."""
    endless = source("search", 44, ENDLESS)
    frames = (endless, MAIN) if state == "endless" else (*c10d("barrier"), train(25))
    moves = rank(1, *frames, cpu=0.0 if state == "idle" else 0.9, deep_seconds_ago=2.0)
    assert job(snapshot(in_loop(0, 4), moves, silence=3600.0), patience=1.0).verdict == "waiting"
    both = [replace(in_loop(n, 4), deep_seconds_ago=2.0) for n in (0, 1)]
    assert job(snapshot(*both, silence=3600.0), patience=1.0).verdict == "healthy"


def test_a_stop_is_seen_whatever_the_age_of_the_stack() -> None:
    held = KernelState(state="T")
    found = job(snapshot(in_loop(0, 4), stale(state="T", at_start=held)))
    assert told(found) == ("hung", "stopped")


def test_rounds_between_two_stacks_are_those_of_the_window() -> None:
    """Forty rounds in twenty seconds are two in the one second in which the processors were watched."""

    def ranks(apart: float) -> Snapshot:
        counters = (counted("train", "step", 10, 50),)
        return snapshot(
            *(
                replace(
                    rank(
                        n, frame("forward", 3), train(15), cpu=0.9 if n else 0.1, progress=Progress(counters=counters)
                    ),
                    stack_before=replace(stack(frame("forward", 3), train(15)), at_seconds=-apart),
                )
                for n in (0, 1)
            ),
            silence=0.0,
        )

    assert [one.code for one in job(ranks(1.0)).findings] == ["HD601"]
    assert not job(ranks(20.0)).findings


@pytest.mark.parametrize(
    ("header", "expected"),
    [("for _attempt in range(40)", ("waiting", "waiting-data")), ("while not found", ("hung", "waiting-data"))],
)
def test_a_dataset_that_retries_a_counted_number_of_times_is_waited_for(header: str, expected: tuple[str, str]) -> None:
    """The rank loads data itself. A loop without an end may go on forever."""
    retries = Loop(line=40, end_line=48, header=header, bound="40" if "range" in header else None)
    loader = frame("__next__", 9, "/e/site-packages/torch/utils/data/dataloader.py", library=True)
    frames = (
        source("download", 47, retries),
        source("__getitem__", 53),
        loader,
        frame("train", LOOP.line, loops=(LOOP,)),
    )
    asleep = {"syscall": "clock_nanosleep", "sleep_seconds": 12.0}
    found = job(snapshot(in_loop(0, 4), rank(1, *frames, kernel=asleep)))
    assert told(found) == expected


@pytest.mark.parametrize(("header", "verdict"), [("while True", "hung"), ("while time.monotonic() < until", "waiting")])
def test_a_loop_that_the_clock_ends_is_not_endless(header: str, verdict: str) -> None:
    loop = Loop(line=11, end_line=13, header=header)
    spins = rank(1, frame("search", 12, source="step()", loops=(loop,)), cpu=0.9, progress=Progress(counters=()))
    assert job(snapshot(in_loop(0, 4), spins, silence=60.0)).verdict == verdict


@pytest.mark.parametrize(
    ("header", "cpu", "told"),
    [
        ("while time.monotonic() < end", 0.04, ("waiting", "computing")),
        ("while time.monotonic() < end", 0.001, ("waiting", "sleeping")),
        ("while not is_ready()", 0.04, ("hung", "sleeping")),
    ],
)
def test_who_sleeps_in_a_loop_until_a_time_polls_for_nothing(header: str, cpu: float, told: tuple[str, str]) -> None:
    """It evaluates at a limited rate, or rests. The host's clock shows when its loop ends."""
    loop = Loop(line=11, end_line=13, header=header)
    rests = frame("soak", 13, source="time.sleep(0.03)", loops=(loop,), locals=(local("end", 7150.5),))
    kernel = {"syscall": "clock_nanosleep", "sleep_seconds": 0.02, "voluntary_switches": 40}
    seen = snapshot(in_loop(0, 4), rank(1, rests, cpu=cpu, kernel=kernel), silence=90.0)
    seen = replace(seen, hosts=(replace(seen.hosts[0], monotonic_us=7_000_000_000),))
    found = job(seen)
    assert (found.verdict, found.ranks[1].state) == told
    assert ("in a loop that ends in 2 min 30 s" in str(found.findings)) is (told[1] == "computing")
    assert ("polling" in str(found.findings)) is (found.verdict == "hung")


@pytest.mark.parametrize(
    ("end", "shows"),
    [("7150.5", True), ("93000.0", True), ("94000.0", False), ("6999.0", True), ("6989.0", False), ("6.9e+03", True)]
    + [(text, False) for text in ("inf", "1e400", "nan", "1e300", "9" * 400)],
)
def test_the_end_of_a_loop_that_is_over_or_far_away_says_nothing(end: str, shows: bool) -> None:
    """`end = float("inf")`."""
    loop = Loop(line=11, end_line=13, header="while time.monotonic() < end")
    works = frame("soak", 13, source="time.sleep(0.03)", loops=(loop,), locals=(local("end", end),))
    kernel = {"syscall": "clock_nanosleep", "sleep_seconds": 0.02, "voluntary_switches": 40}
    seen = snapshot(in_loop(0, 4), rank(1, works, cpu=0.04, kernel=kernel), silence=90.0)
    found = job(replace(seen, hosts=(replace(seen.hosts[0], monotonic_us=7_000_000_000),)))
    assert ("in a loop that ends" in str(found)) is shows
    assert (found.ranks[1].state == "computing") is shows


@pytest.mark.parametrize(("share", "verdict"), [(0.15, "healthy"), (0.01, "hung")])
def test_a_thread_that_waits_for_commands_is_not_what_trains(share: float, verdict: str) -> None:
    """The main thread sleeps between two steps."""
    processes = []
    for number in (0, 1):
        main = (frame("step", 12, source="time.sleep(0.05)"), train(12))
        link = (*c10d("broadcast"), frame("link", 70)) if number else (frame("pick", 67, source="time.sleep(1)"),)
        process = rank(number, *main, cpu=share, kernel={"syscall": "clock_nanosleep"})
        thread = PythonThread(tid=7, name="link", active=False, owns_gil=False, frames=link)
        python = replace(stack(*main), threads=(*stack(*main).threads, thread))
        assert isinstance(process.clocks, Clocks)
        idle = replace(process.clocks.threads[0], tid=7, name="link", cpu_ns=0, syscall="futex")
        clocks = replace(process.clocks, threads=(*process.clocks.threads, idle))
        processes.append(replace(process, stack=python, stack_before=python, clocks=clocks))
    assert job(snapshot(*processes, silence=60.0)).verdict == verdict


@pytest.mark.parametrize(("left", "timeout", "verdict"), [(900.0, 3600.0, "waiting"), (900.0, 800.0, "hung"),
                                                        (900.0, None, "hung"), (500.0, None, "waiting")])  # fmt: skip
def test_a_single_sleep_ends_by_itself_if_the_others_wait_that_long(
    left: float, timeout: float | None, verdict: str
) -> None:
    """The timeout of the run is in the record of calls. Without a record, it may be torch's shortest default."""
    sleeps = rank(1, frame("rest", 26), train(12), kernel={"syscall": "clock_nanosleep"})
    assert isinstance(sleeps.clocks, Clocks)
    main, *others = sleeps.clocks.threads
    sleeps = replace(
        sleeps, clocks=replace(sleeps.clocks, threads=(replace(main, sleep_seconds=left, idle_seconds=9.0), *others))
    )
    if timeout is not None:
        forms: dict[CallForm, int] = {}
        made = T0_US - 100_000_000
        done = history_of([(7, CallForm(op="all_reduce"), made, False)], wall_us=T0_US, forms=forms, timeout=timeout)
        sleeps = replace(sleeps, recorder=recorder(done, forms=forms))
    assert job(snapshot(in_loop(0, 4), sleeps, silence=90.0)).verdict == verdict


def test_a_method_that_returns_the_next_lot_polls_for_it() -> None:
    """A generator may yield in its loop. A method that is called `next` does not."""
    waits = frame("Inbox.next", 30, source="time.sleep(0.25)", loops=(Loop(line=26, end_line=30, header="while True"),))
    calls = frame("main", 79, source="path = inbox.next()", loops=(Loop(line=78, end_line=86, header="while True"),))
    process = rank(1, waits, calls, kernel={"syscall": "clock_nanosleep"})
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, sleep_seconds=0.2, whole_sleep_seconds=0.25, voluntary_switches=4)
    process = replace(process, clocks=replace(process.clocks, threads=(main, *others)))
    assert job(snapshot(in_loop(0, 4), process, silence=90.0)).verdict == "hung"


@pytest.mark.parametrize(
    ("inner", "source", "state"),
    [
        ("fully_shard", "for block in model: fully_shard(block)", "computing"),
        ("read_rows", "for block in model: fully_shard(block)", "loading-data"),
        ("read_rows", "for block in model:", "loading-data"),
        ("imap", "for block in pool.imap(read, (k for k in range(9))):", "loading-data"),
        ("fully_shard", "for block in parts(model,2): fully_shard(block)", "computing"),
        ("step", "for block in range(60000 if r==0 else 40000): m(x).backward(); o.step()", "computing"),
        ("wrapper", "for block in range(60000 if r==0 else 40000): m(x).backward(); o.step()", "computing"),
    ],
)
def test_the_body_of_a_loop_of_one_line_is_no_iterator(inner: str, source: str, state: str) -> None:
    header = ast.unparse(ast.parse(source.partition(":")[0] + ": pass")).partition(":")[0]
    loop = Loop(line=28, end_line=28, header=header)
    works = (frame("wrapper", 9), frame(inner, 12), frame("main", 28, source=source, loops=(loop,)))
    found = job(snapshot(*(rank(number, *works, cpu=0.9) for number in range(2))))
    assert found.ranks[0].state == state


def test_the_busy_children_of_a_rank_are_named() -> None:
    def child(pid: int, name: str, cpu: float) -> Process:
        thread = KernelThread(
            tid=pid, name=name, state="R", cpu_ns=int(cpu * 1e9), voluntary_switches=0, involuntary_switches=0
        )
        clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(thread,))
        return helper(pid, 101, name=name, clocks=clocks, stack=Unavailable(reason="no Python"))

    waits = rank(1, frame("Popen.wait", 9, "/python3/subprocess.py"), frame("build", 7), train(15))
    children = [child(7, "cc1plus", 0.9), child(8, "<str>", 0.95), child(9, "sleep", 0.0)]
    found = job(snapshot(in_loop(0, 4), waits, *children))
    assert told(found) == ("waiting", "working")
    assert "its child processes 8, 7 (cc1plus) are busy" in [line.text for line in found.findings[0].evidence]


@pytest.mark.parametrize(
    ("header", "state"),
    [
        ("for block in self.blocks", "computing"),
        ("for _ in range(length)", "computing"),
        ("for x in self.pipeline(rows)", "loading-data"),
        ("for x in enumerate(self.pipelines[0](rows))", "loading-data"),
    ],
)
def test_a_module_in_the_body_of_a_loop_of_one_line_loads_no_data(header: str, state: str) -> None:
    """The line that calls a module of a ModuleList does not name its function; a module may also make what a loop reads."""
    loop = Loop(line=8, end_line=8, header=header)
    calls = frame("Module._wrapped_call_impl", 1778, f"{TORCH}nn/modules/module.py")
    runs = frame("forward", 8, source=f"{header}: h = block(h, m)", loops=(loop,))
    found = job(snapshot(*(rank(number, frame("add", 3), calls, runs, cpu=0.9) for number in range(2))))
    assert found.ranks[0].state == state


@pytest.mark.parametrize(("cpu", "expected"), [(0.0, ("hung", "starving")), (0.02, ("waiting", "working"))])
def test_a_thread_of_the_program_may_fill_what_a_generator_goes_round_for(
    cpu: float, expected: tuple[str, str]
) -> None:
    """At the header of its `while True`, too. One that rests fills nothing."""
    fetches = (source("cycle", 40, ENDLESS), frame("main", 10, source="next(it)", loops=(LOOP,)))
    fills = PythonThread(tid=900, name="fills", active=False, owns_gil=False, frames=(frame("fill", 70),))
    own = stack(*fetches)
    assert isinstance(own, Stack)
    both = replace(own, threads=(*own.threads, fills))
    other = KernelThread(tid=900, name="fills", state="S", cpu_ns=int(cpu * 1e9), voluntary_switches=0,
                         involuntary_switches=0)  # fmt: skip
    clocks = rank(1, cpu=0.95).clocks
    assert isinstance(clocks, Clocks)
    clocks = replace(clocks, threads=(*clocks.threads, other))
    assert told(job(busy(*fetches, stack=both, stack_before=both, clocks=clocks))) == expected


def test_a_process_of_another_run_is_named_as_one() -> None:
    """It may make the file for which a rank looks."""
    looks = Loop(line=40, end_line=60, header="while not os.path.exists(path)")
    at_work = (Holder(pid=9, name="python", state="R", works=True, of_run=True),)
    found = job(snapshot(replace(polling(0, looks), others_at_work=at_work), in_loop(1, 4)))
    assert found.verdict == "waiting"
    assert "pid 9 (python, of another run, at work)" in str(found.findings[0].evidence)


@pytest.mark.parametrize(("seconds", "state"), [(6.0, "sleeping"), (0.05, "computing")])
def test_a_rank_that_moved_into_a_long_sleep_is_not_computing(seconds: float, state: str) -> None:
    """A slow verifier on one rank: it was at another line before."""
    slow = rank(
        1,
        frame("judge", 4, source="time.sleep(6)"),
        train(12),
        stack_before=stack(frame("judge", 3), train(12)),
        kernel={"syscall": "clock_nanosleep", "sleep_seconds": seconds / 2, "whole_sleep_seconds": seconds},
        cpu=0.02,
    )
    (job,) = diagnose(snapshot(rank(0, *c10d("all_gather"), train(14)), slow, silence=0.1)).jobs
    assert job.ranks[1].state == state
    assert job.ranks[1].progress is not None
    assert job.verdict == "waiting"
