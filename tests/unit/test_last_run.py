"""When a thread last ran, by the scheduler's clocks."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel.clocks import CpuClocks, _read_waiting_place, threads_of
from hangdoc.observe.kernel.last_run import SchedulerClocks
from hangdoc.observe.look.settling import seconds_until_settled, wait_until_settled
from hangdoc.procfs import ProcFS

PROC = ProcFS()
pytestmark = pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel has no /proc/PID/sched")


def asleep() -> "subprocess.Popen[bytes]":
    """A process that has begun a long sleep."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    while (
        PROC.read(f"{child.pid}/syscall").split()[0] not in (b"230", b"270")  # Python 3.10 sleeps in pselect6
        and PROC.text(f"{child.pid}/wchan") != "hrtimer_nanosleep"
    ):
        time.sleep(0.01)
    return child


def test_how_long_a_process_has_slept() -> None:
    with asleep() as child:
        try:
            began = time.monotonic()
            time.sleep(1.5)
            threads = threads_of(PROC, child.pid)
            assert isinstance(threads, dict)
            reading = threads[child.pid]
            assert reading.switches is not None
            clocks, allowed = SchedulerClocks(PROC), os.sched_getaffinity(0)
            task = f"{child.pid}/task/{child.pid}"
            last_run = clocks.last_run(task, reading.processor, reading.switches)
            assert last_run == pytest.approx(began, abs=0.5)
            assert os.sched_getaffinity(0) == allowed
            assert clocks.last_run(task, reading.processor, reading.switches - 1) is None, "it has run since that count"
            assert clocks.last_run(task, None, reading.switches) is None
            assert clocks.last_run(f"{2**22 + 1}/task/1", 0, 1) is None
        finally:
            child.kill()


def test_a_processor_that_may_not_be_used_gives_no_time() -> None:
    with asleep() as child:
        try:
            threads = threads_of(PROC, child.pid)
            assert isinstance(threads, dict)
            assert (
                SchedulerClocks(PROC).last_run(
                    f"{child.pid}/task/{child.pid}", 100_000, threads[child.pid].switches or 0
                )
                is None
            )
        finally:
            child.kill()


def test_a_short_stop_is_observed_until_it_has_lasted() -> None:
    """A CPU limiter continues the rank before that. An older stop needs no more time."""

    def seconds(age: float) -> float:
        stopped = Target(pid=2**22 + 1, ppid=1, role="rank", name="python3", argv=(), state="T", start_ticks=0)
        stopped.last_run = time.monotonic() - age
        return seconds_until_settled(
            Observation(
                proc=PROC,
                deadline=Deadline(60),
                window=0.1,
                native="never",
                targets={stopped.pid: stopped},
            )
        )

    assert seconds(2.0) == pytest.approx(4.0, abs=0.2)
    assert seconds(60.0) == 0.0


def test_a_run_that_waits_is_observed_until_it_makes_a_step() -> None:
    """All ranks may wait for a slow service. A run that has waited for longer needs no more time."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        os.write(child.stdin.fileno(), b"x")
        os.read(child.stdout.fileno(), 1)
        while PROC.stat(str(child.pid)).state != "S":
            time.sleep(0.01)

        stopped: list[bool] = []

        def seconds(age: float, in_call: float | None = None, *, moved: bool = False) -> float:
            rank = Target(pid=child.pid, ppid=1, role="rank", name="cat", argv=(), state="S", start_ticks=0)
            began = time.monotonic()
            rank.last_run = began - age
            rank.in_call_since = began - in_call if in_call is not None else None
            observation = Observation(
                proc=PROC, deadline=Deadline(60), window=0.1, native="never", targets={rank.pid: rank}
            )
            stopped.append(wait_until_settled(observation, frozenset({child.pid} if moved else ())))
            return time.monotonic() - began

        try:
            assert seconds(60.0) < 0.5
            assert seconds(60.0, moved=True) == pytest.approx(5.0, abs=0.5), "it ran after it was dated"
            assert stopped == [False, True]
            assert seconds(3.0, in_call=60.0) < 0.5, "an observer paused it, but it is in the same call"
            assert seconds(3.0) == pytest.approx(2.0, abs=0.5), "nothing comes: 5 seconds after it last ran"
            reply = threading.Timer(1.0, os.write, (child.stdin.fileno(), b"x"))
            reply.start()
            assert seconds(0.5, moved=True) == pytest.approx(1.3, abs=0.5)
            assert not stopped[-1]
            reply.join()
        finally:
            child.kill()


@pytest.mark.parametrize(("calls", "busy"), [(True, False), (False, True)])
def test_a_run_that_goes_on_has_not_stopped(calls: bool, busy: bool) -> None:
    """It trains in another thread, so that only its calls show it; or it computes, and never gives up its processor."""
    program = "print(flush=True)\nwhile True: pass" if busy else "print(flush=True)\nimport time\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            rank = Target(pid=child.pid, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=0)
            observation = Observation(
                proc=PROC, deadline=Deadline(60), window=0.1, native="never", targets={rank.pid: rank}
            )
            made = itertools.count()
            began = time.monotonic()
            assert not wait_until_settled(
                observation, frozenset({child.pid}), lambda targets: next(made) if calls else 0
            )
            assert time.monotonic() - began < 1.0
        finally:
            child.kill()


def test_an_own_pause_does_not_end_the_wait() -> None:
    """A poll that had to stop the process knows that it ran for that reason only."""
    with asleep() as child:
        try:
            target = Target(pid=child.pid, ppid=1, role="rank", name="python3", argv=(), state="S", start_ticks=0)
            observation = Observation(
                proc=PROC, deadline=Deadline(60), window=0.1, native="never", targets={child.pid: target}
            )
            time.sleep(1.2)
            ages = []
            clocks = CpuClocks()
            clocks.open(observation)
            assert target.at_rest
            for noted in (True, False):
                child.send_signal(19)
                while PROC.stat(str(child.pid)).state != "T":
                    time.sleep(0.01)
                child.send_signal(18)
                while PROC.stat(str(child.pid)).state != "S":
                    time.sleep(0.01)
                if noted:
                    clocks.paused(child.pid)
                clocks.close(observation)
                clocks.start_next_window(observation)
                clocks.close(observation)
                found = clocks.across(observation, child.pid)
                ages += [thread.idle_seconds for thread in getattr(found, "threads", ())]
            assert ages[0] is not None
            assert ages[0] > 1.0
            assert ages[1] is not None
            assert ages[1] < 1.0
        finally:
            child.kill()


def test_a_sleep_that_a_stop_has_interrupted() -> None:
    """A relative one, as C code makes them. The kernel shows restart_syscall, and Linux 6.18 not what it restarts."""

    def state() -> bytes:
        return PROC.read(f"{child.pid}/stat").rpartition(b")")[2].split()[0]

    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            for number, before, after in ((signal.SIGSTOP, b"S", b"T"), (signal.SIGCONT, b"T", b"S")):
                while state() != before:
                    time.sleep(0.01)
                os.kill(child.pid, number)
                while state() != after:
                    time.sleep(0.01)
            place = _read_waiting_place(PROC, child.pid, child.pid)
            assert place.syscall in ("nanosleep", "clock_nanosleep"), place
            assert place.sleep_seconds is not None
            assert 0 < place.sleep_seconds <= 600
        finally:
            child.kill()
