"""What polls rest on: who has run since when, who is new, what may be carried over."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Target
from hangdoc.observe.find import membership
from hangdoc.observe.find.discover import Scope
from hangdoc.observe.find.membership import Membership
from hangdoc.observe.kernel import process_table
from hangdoc.observe.kernel.clocks import CpuClocks, Reading, Threads, threads_of
from hangdoc.observe.look.deep_reader import DeepReader, Readings
from hangdoc.observe.look.glance import Glance
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc.observe.stacks import native_stacks
from hangdoc.observe.stacks.python_stacks import COUNTS, has_run, waits_for_a_child
from hangdoc.observe.torch import dataloaders, loops
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import (
    Clocks,
    Counter,
    FlightRecorder,
    Frame,
    Interpreter,
    KernelThread,
    Loader,
    Local,
    Loops,
    PythonThread,
    Recorded,
    RecordedGroup,
    Stack,
    Unavailable,
)
from tests.unit.builders import c10d, frame, rank
from tests.unit.test_observe_parts import TORCH, fake_process

LIBRARY = frame("run", 9, "/e/site-packages/tqdm/_monitor.py", library=True)


def thread(tid: int, *frames: object, name: str = "", gil: bool = False) -> PythonThread:
    return PythonThread(tid=tid, name=name, active=False, owns_gil=gil, frames=frames)  # type: ignore[arg-type]


def clocks(**ran: int) -> Threads:
    """Threads 10 (the main one), 11, ... with what each has used."""
    return {int(name[1:]): Reading(used, used, used, 0, "python", "S", 0) for name, used in ran.items()}


STACK = Stack(
    at_seconds=0.0,
    threads=(
        thread(10, *c10d("all_reduce"), frame("train", 5), name="MainThread"),
        thread(11, LIBRARY),
        thread(12, frame("feed", 3)),
    ),
)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (clocks(t10=5, t11=5, t12=5, t13=5), False),
        (clocks(t10=6, t11=5, t12=5, t13=5), True),  # the main thread
        (clocks(t10=5, t11=6, t12=5, t13=5), False),  # a monitor of a library
        (clocks(t10=5, t11=5, t12=6, t13=5), True),  # the user's own thread
        (clocks(t10=5, t11=5, t12=5, t13=6), False),  # one of Gloo's
        (clocks(t10=5, t11=5, t12=5, t13=5, t14=1), True),  # who starts a thread has run
        (clocks(t10=5, t11=5, t13=5), True),  # one that has ended
        ({}, True),
    ],
)
def test_who_has_run(now: Threads, expected: bool) -> None:
    assert has_run(10, STACK, clocks(t10=5, t11=5, t12=5, t13=5), now) is expected


@pytest.mark.parametrize(("now", "expected"), [(clocks(t10=6, t11=5), False), (clocks(t10=5, t11=6), True)])
def test_where_a_framework_trains_in_a_thread_the_main_thread_tells_nothing(now: Threads, expected: bool) -> None:
    """A worker of Ray Train that stands still: Ray's loop in its main thread wakes a hundred times a second."""
    loop = frame("Worker.main_loop", 1069, "/e/site-packages/ray/_private/worker.py", library=True)
    starts = "/e/site-packages/ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    trains = thread(11, frame("ThreadRunner.run.<locals>._run_target", 37, starts, library=True), name="TrainingThread")
    worker = Stack(at_seconds=0.0, threads=(thread(10, loop, name="MainThread"), trains))
    assert has_run(10, worker, clocks(t10=5, t11=5), now) is expected
    holds = Stack(at_seconds=0.0, threads=(thread(10, loop, name="MainThread", gil=True), trains))
    assert has_run(10, holds, clocks(t10=5, t11=5), now)  # it must not be said to have kept it


def test_whoever_had_the_gil_matters() -> None:
    """A monitor that happened to hold the GIL when it was read must not be said to have kept it."""
    holds = replace(STACK, threads=(*STACK.threads[:1], thread(11, LIBRARY, gil=True)))
    assert has_run(10, holds, clocks(t10=5, t11=5), clocks(t10=5, t11=6))


def test_a_running_thread_is_never_taken_to_stand() -> None:
    """A processor's clock is read up to its last tick: it may have run, and show the same number."""
    running = {10: clocks(t10=5)[10]._replace(state="R")}
    assert has_run(10, STACK, running, running)


def test_what_stands_counts_as_seen_twice() -> None:
    counter = Counter(name="n", function="f", file="x.py", before=1, after=4)
    inside = Interpreter(
        environment={}, globals=(Local(name="step", text="4"), Local(name="name", text="'x'")),
        globals_before=(Local(name="step", text="1"),),
    )  # fmt: skip
    readings = Readings(10, 1, 100.0, clocks(t10=5), STACK, interpreter=inside, counters=(counter,))
    moves, stands = readings.fields(103.0, current=False), readings.fields(103.0, current=True)
    assert isinstance(moves["stack_before"], Unavailable)
    assert moves["stack"].at_seconds == -3.0
    assert moves["interpreter"].globals_before == (Local(name="step", text="1"),)
    assert stands["stack_before"].threads == stands["stack"].threads
    assert stands["interpreter"].globals_before == (Local(name="step", text="4"),)
    assert [
        (one.before, one.after)
        for one in (*readings.current_counters(current=False), *readings.current_counters(current=True))
    ] == [
        (1, 4),
        (4, 4),
    ]


def test_a_thread_that_has_not_run_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that has is."""
    read: list[str] = []

    class Counting(ProcFS):
        def read(self, name: str) -> bytes:
            read.append(name)
            return super().read(name)

    program = "import sys; print(flush=True); sys.stdin.readline(); print(flush=True); sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        while "S (sleeping)" not in Path(f"/proc/{child.pid}/status").read_text():
            time.sleep(0.01)
        proc = Counting()
        first = threads_of(proc, child.pid)
        assert isinstance(first, dict)
        read.clear()
        second = threads_of(proc, child.pid, first)
        assert isinstance(second, dict)
        assert second[child.pid] is first[child.pid]
        assert [name.rpartition("/")[2] for name in read] == ["schedstat"]
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        third = threads_of(proc, child.pid, second)
        assert isinstance(third, dict)
        assert third[child.pid].ran != first[child.pid].ran
        child.communicate(b"\n")


def test_a_kernel_that_does_not_count_is_known_by_its_zeros(tmp_path: Path) -> None:
    """Without CONFIG_SCHED_INFO, schedstat shows zeros for all threads: clock ticks are used, and nothing is carried over."""
    fake_process(tmp_path, 10, 1, "python x", TORCH)
    task = tmp_path / "10" / "task" / "10"
    task.mkdir(parents=True)
    (task / "stat").write_text((tmp_path / "10" / "stat").read_text())
    (task / "status").write_text("Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n")
    (task / "schedstat").write_text("0 0 0\n")
    found = threads_of(ProcFS(str(tmp_path)), 10)
    assert isinstance(found, dict)
    assert found[10] == Reading(30_000_000, None, 7, 2, "na me) S", "S", 0)
    probe = CpuClocks()
    assert probe.readings(10) == ({}, {})


# --- who is looked at ------------------------------------------------------------------------------------------------


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times at which the whole table of processes was read."""
    times: list[float] = []
    real = process_table.read

    def counted(proc: ProcFS) -> process_table.ProcessTable:
        times.append(time.monotonic())
        return real(proc)

    monkeypatch.setattr(process_table, "read", counted)
    monkeypatch.setattr(membership, "_SEARCHES", (0.0,))
    return times


def test_the_host_is_searched_only_for_new_pythons(tmp_path: Path, searches: list[float]) -> None:
    (tmp_path / "uptime").write_text("1000.0 1.0")
    fake_process(tmp_path, 10, 1, "/usr/bin/python /bin/torchrun --nproc-per-node 2 train.py", {})
    fake_process(tmp_path, 30, 10, "python train.py", TORCH)
    followed = Membership(ProcFS(str(tmp_path)), Scope())
    assert followed.refresh(Deadline(9)) == {10, 30}
    for _ in range(3):
        assert followed.refresh(Deadline(9)) == set()
    fake_process(tmp_path, 50, 1, "bash", {}, exe="bash")
    fake_process(tmp_path, 60, 30, "python worker.py", TORCH)  # below a rank: its helper, whatever it carries
    assert followed.refresh(Deadline(9)) == {60}
    assert (followed.targets[60].role, followed.targets[60].owner) == ("helper", 30)
    assert len(searches) == 1
    fake_process(tmp_path, 70, 10, "python train.py", {**TORCH, "RANK": "0", "LOCAL_RANK": "0"})
    assert followed.refresh(Deadline(9)) == {70}
    assert len(searches) == 2


@pytest.mark.parametrize("late", ["in the table", "in memory"])
def test_who_took_too_long_is_searched_for_again(
    tmp_path: Path, searches: list[float], monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """A watch that gets hardly any processor reads nobody at first. It then saw no rank for ever."""
    fake_process(tmp_path, 30, 1, "python train.py", TORCH)
    read, unread = process_table.read, {30} if late == "in the table" else set()
    monkeypatch.setattr(process_table, "read", lambda proc: process_table.ProcessTable({}, unread))
    monkeypatch.setattr(isolation.shared, "gave_up", lambda: late == "in memory")
    monkeypatch.setattr(membership, "_AGAIN_SECONDS", 0.0)
    followed = Membership(ProcFS(str(tmp_path)), Scope())
    assert followed.refresh(Deadline(9)) == set()
    monkeypatch.setattr(process_table, "read", read)
    monkeypatch.setattr(isolation.shared, "gave_up", lambda: False)
    assert followed.refresh(Deadline(9)) == {30}
    followed.refresh(Deadline(9))
    assert len(searches) == 1


def test_a_shell_that_becomes_a_rank_is_found(tmp_path: Path, searches: list[float]) -> None:
    followed = Membership(ProcFS(str(tmp_path)), Scope())
    followed.refresh(Deadline(9))
    fake_process(tmp_path, 30, 1, "sh -c python", TORCH, exe="dash")
    assert followed.refresh(Deadline(9)) == set()
    (tmp_path / "30" / "exe").unlink()
    (tmp_path / "30" / "exe").symlink_to("/usr/bin/python3")
    assert followed.refresh(Deadline(9)) == {30}


def test_who_is_gone_is_no_target_and_who_took_its_pid_is_new(tmp_path: Path, searches: list[float]) -> None:
    fake_process(tmp_path, 30, 1, "python train.py", TORCH)
    fake_process(tmp_path, 40, 1, "python train.py", {**TORCH, "RANK": "0"})
    followed = Membership(ProcFS(str(tmp_path)), Scope())
    followed.refresh(Deadline(9))
    stat = tmp_path / "30" / "stat"
    stat.write_text(stat.read_text().replace(" 300 ", " 777 "))
    for name in os.listdir(tmp_path / "40"):
        (tmp_path / "40" / name).unlink()
    (tmp_path / "40").rmdir()
    assert followed.refresh(Deadline(9)) == {30}
    assert list(followed.targets) == [30]


def test_a_reading_of_a_process_that_ran_meanwhile_is_not_current() -> None:
    """Its clocks are read after its stack: it may have left that place and stopped in between. Seen on a run that froze while it
    was read, which was then reported at the wrong place forever."""
    ran = clocks(t10=5, t11=5, t12=5)
    reading = Readings(10, 1, 0.0, ran, STACK)
    assert reading.out_of_date(ran)
    reading.off_cpu = True
    assert not reading.out_of_date(ran)
    assert reading.out_of_date(clocks(t10=6, t11=5, t12=5))


# --- cards -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("finished", "silent"), [(None, True), (0.2, False)])
def test_a_run_whose_cards_rest_is_silent_although_its_ranks_spin(finished: float | None, silent: bool) -> None:
    waits = Recorded(seq=5, op="all_reduce", age_seconds=20.0)
    group = RecordedGroup(name="0", default=True, issued=5, issued_before=5, pending=(waits,), on_card=True)
    record = FlightRecorder(source="memory", age_seconds=0.0, groups=(group,), finished_seconds_ago=finished)
    ranks = [SimpleNamespace(pid=pid, held=False, state="R", role="rank", run="mine", owner=None) for pid in (10, 11)]
    poller = Polling(Options(window=1.0))
    poller._observation = SimpleNamespace(ranks=lambda: ranks, window=1.0, targets={})  # type: ignore[assignment]
    busy = Clocks(
        window_seconds=1.0,
        resolution_ns=1,
        threads=(
            KernelThread(tid=10, name="python", state="R", cpu_ns=10**9, voluntary_switches=0, involuntary_switches=0),
        ),
    )
    gathered = {pid: {"recorder": record, "clocks": busy} for pid in (10, 11)}
    poller._update_silence(gathered, ranks, set(), set())  # type: ignore[arg-type]
    assert ("mine" in poller._silent) is silent
    poller.close()


@pytest.mark.parametrize(
    ("counts", "changed", "cost", "kept"),
    [
        ((5, 5), False, 0.5, True),
        ((5, 5), False, 0.0, False),  # few sockets: reading them costs nothing
        ((5, 0), False, 0.5, False),  # one rank may hang
        ((5, 5), True, 0.5, False),  # a new process has other sockets
        ((), False, 0.5, False),
    ],
)
def test_sockets_of_ranks_that_all_make_calls_are_kept_for_a_while(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], changed: bool, cost: float, kept: bool
) -> None:
    """64 ranks have 4,096 of them, and reading them took a third of a poll."""
    polling = Polling(Options())
    pids = range(10, 10 + len(counts))
    polling._observation.targets = {
        pid: Target(pid=pid, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=1) for pid in pids
    }
    records = [
        (pid, "recorder", FlightRecorder(source="memory", age_seconds=0.0, groups=(), entries_in_window=count))
        for pid, count in zip(pids, counts, strict=True)
    ]
    monkeypatch.setattr(polling._recorders, "evidence", lambda _: records)
    read: list[bool] = []
    monkeypatch.setattr(polling._sockets, "close", lambda _: read.append(True))
    polling._sockets._read_at, polling._sockets._cost = time.monotonic(), cost
    polling._read_sockets(polling._observation, changed=changed)
    assert (polling._sockets_kept, bool(read)) == (kept, not kept)
    polling.close()


def test_loops_are_read_again_when_a_rank_has_run_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it has not run in the window: after a gap, a watch begins a new one, and the rank may have frozen before."""
    polling = Polling(Options())
    target = Target(pid=7, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=1)
    polling._observation.targets = {7: target}
    clocks = {7: Reading(1, 1, 1, 1, "python", "S", 0)}
    monkeypatch.setattr(polling._clocks, "readings", lambda pid: (clocks, clocks))
    read: list[int] = []
    monkeypatch.setattr(polling._loops, "read", lambda *_: read.append(7) or loops.ReadLoops((), (), 0.0))
    polling._read_loops(polling._observation)
    polling._read_loops(polling._observation)
    assert read == [7]
    clocks = {7: Reading(2, 2, 2, 1, "python", "S", 0)}
    polling._read_loops(polling._observation)
    assert read == [7, 7]
    polling.close()


def test_a_reading_of_loops_that_a_poll_did_not_renew_has_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll reads some of the ranks that have run. What it says of the others is of an earlier moment."""
    monkeypatch.setattr(loops, "_MOST_IN_POLL", 1)
    probe, now = loops.TrainingLoops(), [100.0]
    monkeypatch.setattr(loops.time, "monotonic", lambda: now[0])
    ranks = [SimpleNamespace(pid=pid, state="R", python=True, start_ticks=1) for pid in (1, 2)]

    def read(*_: object) -> loops.ReadLoops:
        now[0] += 0.25
        return loops.ReadLoops((), (), now[0])

    monkeypatch.setattr(probe, "read", read)
    observation: Any = SimpleNamespace(
        ranks=lambda: ranks, read_each=lambda targets, read: {target.pid: read(target) for target in targets}
    )

    def ages(*moved: int) -> dict[int, float]:
        clocks_at = now[0]
        now[0] += 0.5  # other evidence is read first
        found = probe.poll(observation, moved, clocks_at)
        now[0] += 1.5
        return {pid: each.seconds_ago for pid, each in found.items() if isinstance(each, Loops)}

    assert ages(1, 2) == {1: 0.0}
    assert ages(1, 2) == {1: 2.25, 2: 0.0}
    assert ages(1, 2) == {1: 0.0, 2: 2.25}
    assert ages(1) == {1: 0.0, 2: 0.75}  # it had not run when the clocks were read, and may have gone on since
    monkeypatch.setattr(loops, "_MOST_IN_POLL", 2)
    assert sorted(ages(1, 2).values()) == [0.0, 0.25]  # one was read before the other


def test_ranks_in_lock_step_are_counted_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were shown at 161, 163 and 165: to find what a rank iterates took two of its steps. One goes over other data since."""
    probe, now = loops.TrainingLoops(), [4.0]
    monkeypatch.setattr(loops.time, "monotonic", lambda: now[0])

    def seen(step_seconds: float = 0.045) -> tuple[dataloaders.SeenLoader, ...]:
        loader = Loader(kind="_SingleProcessDataLoaderIter", done=int(now[0] / step_seconds), total=187)
        return (dataloaders.SeenLoader(loader, 9, 9),)

    def read(_: object, target: SimpleNamespace) -> loops.ReadLoops:
        at, found = now[0], seen()
        now[0] += 0.09
        return loops.ReadLoops(found, (), at)

    class Reader:
        def __init__(self, pid: int, image: None) -> None:
            self.pid = pid

        def count_again(self, loaders: object) -> list[dataloaders.SeenLoader] | None:
            now[0] += 0.001
            return list(seen()) if self.pid != 4 else None

    monkeypatch.setattr(probe, "read", read)
    monkeypatch.setattr(loops, "LoopReader", Reader)
    observation: Any = SimpleNamespace(
        ranks=lambda: [SimpleNamespace(pid=pid, state="R", python=True, start_ticks=1) for pid in (1, 2, 3, 4)],
        read_each=lambda targets, read: {target.pid: read(target) for target in targets},
        memory=contextlib.nullcontext,
        image=lambda pid: None,
    )
    probe.open(observation)
    found = {pid: each for pid, _, each in probe.evidence(observation)}
    assert [each.loaders[0].done for each in found.values()] == [96, 96, 96, 94]
    assert [each.at for each in probe._first.values()] == pytest.approx([4.36, 4.361, 4.362, 4.27])


def test_a_reading_of_loops_that_a_look_could_not_renew_has_an_age_and_shows_no_standstill() -> None:
    """One of two ranks in lock step was shown at 546 beside 560, as if both numbers were of one moment."""
    loader = Loader(kind="_SingleProcessDataLoaderIter", done=545, pass_id=5)
    later = dataloaders.SeenLoader(replace(loader, done=560), 9)
    first = loops.ReadLoops((dataloaders.SeenLoader(loader, 9),), (), 100.0)
    probe = loops.TrainingLoops()
    probe._first |= {1: first, 2: first}
    probe._second |= {1: loops.ReadLoops((later,), (), 103.0), 2: Unavailable(reason="its frames change")}
    found = {pid: each for pid, _, each in probe.evidence(SimpleNamespace())}  # type: ignore[arg-type]
    shown = {pid: (each.seconds_ago, each.loaders[0].done, each.loaders[0].done_before) for pid, each in found.items()}
    assert shown == {1: (0.0, 560, 545), 2: (3.0, 545, None)}


@pytest.mark.parametrize(
    ("ran", "call_age", "made", "expected"),
    [
        (True, None, 0, True),
        (True, 0.5, 0, True),  # in a call, but not for long
        (True, 9.0, 0, False),  # it may hang in that call
        (False, None, 0, False),  # it rests, and is no longer where it was
        (True, None, 3, False),  # it makes calls now
    ],
)
def test_a_rank_that_made_calls_before_and_was_not_read_since_says_so(
    monkeypatch: pytest.MonkeyPatch, ran: bool, call_age: float | None, made: int, expected: bool
) -> None:
    """After its last call, it was not yet its turn to be read."""
    polling = Polling(Options())
    target = Target(pid=7, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=1)
    polling._observation.targets = {7: target}
    polling._deep.readings[7] = Readings(7, 1, time.monotonic() - 50.0, {}, COUNTS)
    polling._deep.drop_stack(7)
    polling._deep.readings[7].counted_at = time.monotonic() - 2.0
    monkeypatch.setattr(polling._clocks, "readings", lambda pid: (clocks(t7=5), clocks(t7=5 + ran)))
    monkeypatch.setattr(
        "hangdoc.observe.look.polling.process", lambda _, __, fields, ___: rank(0, stack=fields["stack"])
    )
    pending = (Recorded(seq=9, op="all_reduce", age_seconds=call_age),) if call_age is not None else ()
    group = RecordedGroup(name="0", default=True, pending=pending)
    record = FlightRecorder(source="memory", age_seconds=0.0, groups=(group,), entries_in_window=made)
    found = polling._make_process(target, {"recorder": record})
    assert (found.counted_seconds_ago is not None) is expected
    assert isinstance(found.stack, Unavailable)
    assert not found.stack.was_tried
    assert ("makes progress" in found.stack.reason) is (made > 0)
    polling.close()


def test_one_reading_after_the_calls_of_a_rank_does_not_end_what_is_known_of_it() -> None:
    reader = DeepReader(CpuClocks())
    target = Target(pid=7, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=1)
    reader.readings[7] = Readings(7, 1, 0.0, {}, COUNTS)
    reader.drop_stack(7)
    no = Unavailable(reason="no")
    reader._store(target, STACK, no, clocks(t10=5), off_cpu=False)
    assert reader.readings[7].counted_at is not None
    reader._store(target, STACK, no, clocks(t10=5), off_cpu=False)
    assert reader.readings[7].counted_at is None


def test_a_rank_that_moved_when_its_frames_were_asked_for_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a poll that another tracer disturbed, it was found to need none, for as long as it stood still."""
    polling = Polling(Options(window=0.1))
    target = Target(pid=7, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=1)
    polling._observation.targets = {7: target}
    polling._silent = {target.run: (9, 0.0)}
    polling._deep.readings[7] = Readings(7, 1, 0.0, {}, STACK)
    answers: list[dict[int, Any]] = [{}, {7: native_stacks.NOT_NEEDED}]
    monkeypatch.setattr(native_stacks, "read", lambda *_: answers.pop(0))
    polling._read_natives({}, {7})
    assert polling._deep.readings[7].native == native_stacks.NOT_YET
    polling._read_natives({}, {7})
    polling._read_natives({}, {7})  # once is enough
    assert polling._deep.readings[7].native == native_stacks.NOT_NEEDED
    polling.close()


class CountedRecorders:
    """Records of two ranks that made three calls a second in a window of two seconds, and what is counted then."""

    def __init__(self, *counts: dict[int, dict[str, int]], made: int = 6) -> None:
        self.counts, self.made = list(counts), made

    def evidence(self, observation: Any) -> list[tuple[int, str, FlightRecorder]]:
        record = FlightRecorder(source="memory", age_seconds=0.0, groups=())
        return [(pid, "recorder", replace(record, entries_in_window=made)) for pid, made in ((1, 60), (2, self.made))]

    def count_calls(self, observation: Any, targets: list[Any]) -> dict[int, dict[str, int]]:
        return self.counts.pop(0)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({1: {"cpu": 8}, 2: {"cpu": 9}}, True),
        ({1: {"cpu": 8}, 2: {"cpu": 7}}, False),  # rank 2 made none
        ({1: {"cpu": 8}}, False),  # it has ended, or can't be read any more
    ],
)
def test_a_glance_tells_whether_each_rank_continues(
    later: dict[int, dict[str, int]], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("hangdoc.observe.look.glance.time.monotonic", lambda: now)
    observation: Any = SimpleNamespace(ranks=lambda: [SimpleNamespace(pid=1), SimpleNamespace(pid=2)])
    glance = Glance(CountedRecorders({1: {"cpu": 7}, 2: {"cpu": 7}}, later))  # type: ignore[arg-type]
    glance.begin(observation, 2.0, {})
    now += 0.5
    assert glance.confirms(observation) is None  # rank 2 makes a call in a third of a second: it may not be its turn
    now += 0.5
    assert glance.confirms(observation) is expected


def test_a_glance_says_nothing_of_a_rank_that_was_not_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hangdoc.observe.look.glance.time.monotonic", lambda: now)
    observation: Any = SimpleNamespace(ranks=lambda: [SimpleNamespace(pid=1), SimpleNamespace(pid=2)])
    glance = Glance(CountedRecorders({1: {"cpu": 7}}, {1: {"cpu": 8}, 2: {"cpu": 8}}))  # type: ignore[arg-type]
    glance.begin(observation, 2.0, {})
    now += 1.0
    assert glance.confirms(observation) is None


def test_a_glance_says_nothing_of_a_run_in_which_a_rank_made_no_call() -> None:
    observation: Any = SimpleNamespace(ranks=lambda: [SimpleNamespace(pid=1), SimpleNamespace(pid=2)])
    glance = Glance(CountedRecorders(made=0))  # type: ignore[arg-type]
    glance.begin(observation, 2.0, {})
    assert glance.confirms(observation) is None


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"1/task/1": (500, 0, 9), "1/task/7": (20, 5, 3), "2/task/2": (800, 1, 4)}, True),
        ({"1/task/1": (501, 0, 10), "1/task/7": (20, 5, 3), "2/task/2": (800, 1, 4)}, None),  # its main thread has run
        (
            {"1/task/1": (500, 0, 9), "1/task/7": (20, 5, 4), "2/task/2": (800, 1, 4)},
            None,
        ),  # a thread of its code has run
        ({"1/task/1": (500, 0, 9), "1/task/7": (20, 5, 3)}, None),  # rank 2 has ended
    ],
)
def test_a_glance_tells_whether_ranks_that_rested_still_rest(
    later: dict[str, tuple[int, int, int]], expected: bool | None
) -> None:
    class Proc:
        def schedstat(self, task: str) -> tuple[int, int, int]:
            if task not in later:
                raise ProcError(f"{task} has ended")
            return later[task]

    observation: Any = SimpleNamespace(ranks=lambda: [SimpleNamespace(pid=1), SimpleNamespace(pid=2)], proc=Proc())
    reading = Reading(500, 9, 8, 1, "python", "S", 0)
    resting = {
        1: {1: reading, 7: reading._replace(cpu_ns=20, slices=3)},
        2: {2: reading._replace(cpu_ns=800, slices=4)},
    }
    glance = Glance(CountedRecorders(made=0))  # type: ignore[arg-type]
    glance.begin(observation, 2.0, resting)
    assert glance.confirms(observation) is expected


_IN_QUEUE = frame("get", 180, "/lib/python3.11/queue.py", library=True)
_IN_BACKWARD = frame("_engine_run_backward", 979, "/torch/autograd/graph.py", library=True)


@pytest.mark.parametrize(
    ("main", "name", "place", "expected"),
    [
        (
            _IN_QUEUE,
            "Prefetcher",
            frame("recv", 250, "/lib/python3.11/multiprocessing/connection.py", library=True),
            True,
        ),
        (_IN_BACKWARD, "loads", frame("load", 7, "/w/train.py"), True),
        (_IN_BACKWARD, "QueueFeederThread", frame("wait", 327, "/threading.py", library=True), False),
        (_IN_BACKWARD, "pins", frame("_try_get_data", 1131, "/torch/utils/data/dataloader.py", library=True), False),
    ],
)
def test_who_is_in_a_collective_waits_for_a_helper_only_in_its_own_code(
    main: Frame, name: str, place: Frame, expected: bool
) -> None:
    """Each rank with data workers has a thread of the library that waits for them. So top read the workers of a frozen run
    whenever their timeouts woke them, paused them for it, and polled every ten seconds instead of each. But who waits for a
    queue may wait for what such a thread takes from a worker."""
    waits = frame("_feed", 231, "/lib/python3.11/multiprocessing/queues.py", library=True)
    threads = (
        PythonThread(tid=1, name="MainThread", active=False, owns_gil=False, frames=(main,)),
        PythonThread(tid=7, name=name, active=False, owns_gil=False, frames=(place, waits)),
    )
    observation: Any = SimpleNamespace(proc=ProcFS(Path("/nowhere")))
    rank: Any = SimpleNamespace(pid=1)
    assert waits_for_a_child(observation, rank, Stack(at_seconds=0.0, threads=threads)) is expected
