"""What is concluded from stops, tracers and native stacks: built values, and processes without torch."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import process_states
from hangdoc.observe.stacks import attach, native_stacks
from hangdoc.procfs import ProcFS, threads_from_inside
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.snapshot import (
    Clocks,
    Connection,
    Connections,
    Frame,
    KernelState,
    KernelThread,
    Local,
    Process,
    PythonThread,
    Stack,
    Unavailable,
)


def clocks(cpu_ns: int = 0, switches: int = 0, *names: str) -> Clocks:
    main = KernelThread(
        tid=7, name="python", state="S", cpu_ns=cpu_ns, voluntary_switches=switches, involuntary_switches=0
    )
    others = (
        KernelThread(tid=8 + n, name=name, state="S", cpu_ns=9, voluntary_switches=9, involuntary_switches=0)
        for n, name in enumerate(names)
    )
    return Clocks(window_seconds=1.0, resolution_ns=1, threads=(main, *others))


def process(state: str, start: KernelState | None, **more: object) -> Process:
    fields: dict[str, object] = {"clocks": clocks(), **more}
    return Process(
        pid=7, ppid=1, role="rank", name="python", argv=(), state=state, started_seconds_ago=9.0, at_start=start,
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def held(state: str, pid: int = 0, *, frozen: bool = False) -> KernelState:
    return KernelState(state=state, tracer_pid=pid, tracer="gdb" if pid else "", frozen=frozen)


@pytest.mark.parametrize(
    ("one", "by"),
    [
        (process("T", held("T")), "signal"),
        (process("t", held("T"), tracer_pid=5), "signal"),  # stopped, and another observer reads it
        (process("S", held("S", frozen=True), frozen=True), "freezer"),
        (process("t", held("t", 5), tracer_pid=5), "tracer"),
        (process("t", held("t", 5), tracer_pid=6), None),  # two observers, one after the other
        (process("t", held("t", 5), tracer_pid=5, clocks=clocks(40_000)), None),  # one that comes back: py-spy record
        (process("t", held("S"), tracer_pid=5), None),
        (process("S", held("t", 5)), None),
        (process("T", held("S")), None),  # the next look will say
        (process("S", held("S"), frozen=True), None),
        (process("S", held("S", 5), tracer_pid=5), None),  # strace: attached, and the rank runs
        (process("T", None), "signal"),  # of a helper that has started since
    ],
)
def test_a_stop_must_last_over_the_window(one: Process, by: str | None) -> None:
    stop = stopped_by(one)
    assert (stop.by if stop is not None else None) == by


def test_who_holds_a_rank_is_named() -> None:
    stop = stopped_by(process("t", held("t", 5), tracer_pid=5, tracer="gdb"))
    assert stop is not None
    assert stop.why == "held by gdb (pid 5)"


BACKWARD = Frame(function="backward", file="/v/site-packages/torch/autograd/graph.py", line=1, library=True)
STEP = Frame(function="main", file="/home/u/train.py", line=9, locals=(Local(name="step", text="4"),))


def stack(*frames: Frame) -> Stack:
    thread = PythonThread(tid=7, name="MainThread", active=False, owns_gil=False, frames=frames)
    return Stack(at_seconds=0.0, threads=(thread,))


def seen(**more: object) -> dict[str, object]:
    return {"stack_before": stack(BACKWARD, STEP), "stack": stack(BACKWARD, STEP), "clocks": clocks(), **more}


NATIVE = stack(Frame(function="c10d::Work::wait", file="/v/torch/lib/libtorch_cpu.so", line=0, native=True), BACKWARD)
FOREIGN = stack(Frame(function="strerror_r", file="/lib/libc.so.6", line=0, native=True), BACKWARD)


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids of which native stacks were taken."""
    pids: list[int] = []

    def dump(proc: ProcFS, pid: int, deadline: Deadline, **more: object) -> Stack:
        pids.append(pid)
        return NATIVE

    monkeypatch.setattr(attach, "dump", dump)
    return pids


def take(*seen_of: dict[str, object], **host: object) -> dict[int, Stack | Unavailable]:
    targets = {
        7 + n: Target(pid=7 + n, ppid=1, role="rank", name="python", argv=(), state="S", start_ticks=0)
        for n in range(len(seen_of))
    }
    observation = Observation(
        proc=ProcFS(), deadline=Deadline(10), window=1.0, native="auto", targets=targets
    )  # fmt: skip
    gathered: dict[int | None, dict[str, object]] = {None: host, **dict(enumerate(seen_of, 7))}
    return native_stacks.read(observation, gathered)


MOVED = Frame(function="main", file="/home/u/train.py", line=9, locals=(Local(name="step", text="5"),))
PIPELINE = Frame(
    function="_wait_batch_p2p",
    file="/v/site-packages/torch/distributed/pipelining/schedules.py",
    line=683,
    library=True,
)
NAMED = Frame(function="all_reduce", file="/v/torch/distributed/distributed_c10d.py", line=1, library=True)


@pytest.mark.parametrize(
    ("rank", "wanted"),
    [
        (seen(), True),
        (seen(stack=stack(BACKWARD, MOVED)), False),  # the same lines, one step on
        (seen(stack=stack(STEP)), False),
        (seen(clocks=clocks(500_000_000)), False),  # it computes
        (seen(clocks=clocks(990_000_000, 0, "pt_nccl_watchdg")), True),  # it may spin in the GPU's driver
        (seen(stack=stack(BACKWARD, MOVED), clocks=clocks(990_000_000, 0, "pt_nccl_watchdg")), False),
        (seen(stack=stack(NAMED), stack_before=stack(NAMED)), False),  # Python says what it waits in
        (
            seen(stack=stack(PIPELINE), stack_before=stack(PIPELINE)),
            True,
        ),  # a file of torch.distributed that waits for works
        (seen(stack_before=Unavailable(reason="late")), False),
        (seen(clocks=Unavailable(reason="late")), False),
    ],
)
def test_only_a_rank_that_stood_still_is_dumped_natively(
    rank: dict[str, object], wanted: bool, dumped: list[int]
) -> None:
    take(rank)
    assert dumped == ([7] if wanted else [])


def test_bytes_between_two_ranks_are_movement(dumped: list[int]) -> None:
    def end(pid: int, local: int, remote: int) -> Connection:
        return Connection(
            pid=pid, namespace="n", state="ESTABLISHED", local_address="h", local_port=local, remote_address="h",
            remote_port=remote, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=64, last_sent_ms=1,
            last_received_ms=1,
        )  # fmt: skip

    other = seen(clocks=Unavailable(reason="late"))
    take(seen(), other, connections=Connections(connections=(end(7, 1000, 2000), end(8, 2000, 1000))))
    assert dumped == []
    take(seen(), other, connections=Connections(connections=(end(7, 1000, 443),)))  # a tracker's
    assert dumped == [7]


@pytest.mark.usefixtures("dumped")
def test_nothing_is_said_of_a_rank_that_made_progress() -> None:
    """It may stand still in the next poll, and need its C++ frames then."""
    assert take(seen(stack=stack(STEP))) == {}
    assert take(seen(stack=stack(NAMED), stack_before=stack(NAMED))) == {7: native_stacks.NOT_NEEDED}


def test_ranks_whose_other_threads_differ_share_no_dump(dumped: list[int]) -> None:
    """Workers of Ray Train: the main threads run Ray's loop, and the training threads stand at different places."""
    loop = Frame(function="main_loop", file="/v/site-packages/ray/_private/worker.py", line=1, library=True)

    def worker(pid: int, *frames: Frame) -> dict[str, object]:
        main = PythonThread(tid=pid, name="MainThread", active=False, owns_gil=False, frames=(loop,))
        trains = PythonThread(tid=9, name="TrainingThread", active=False, owns_gil=False, frames=frames)
        idle = KernelThread(tid=pid, name="python", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
        stacks = dict.fromkeys(("stack_before", "stack"), Stack(at_seconds=0.0, threads=(trains, main)))
        return seen(**stacks, clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(idle,)))

    take(worker(7, BACKWARD, STEP), worker(8, STEP))
    assert sorted(dumped) == [7, 8]
    dumped.clear()
    take(worker(7, BACKWARD, STEP), worker(8, BACKWARD, STEP))
    assert dumped == [7]


def test_equal_ranks_share_one_dump(dumped: list[int]) -> None:
    second = seen(clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(
        KernelThread(tid=8, name="python", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0),
    )))  # fmt: skip
    assert take(seen(), second) == {7: NATIVE, 8: NATIVE}
    assert dumped == [7]


def test_a_native_stack_without_torch_counts_as_none() -> None:
    assert native_stacks.validated(NATIVE) == NATIVE
    refused = native_stacks.validated(FOREIGN)
    assert isinstance(refused, Unavailable)
    assert "no frame of torch" in refused.reason


@pytest.fixture
def sleeper() -> Iterator[int]:
    code = "import time; print('ready', flush=True); time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.communicate()


@pytest.mark.usefixtures("can_attach")
def test_a_stopped_process_is_read_and_stays_stopped(sleeper: int) -> None:
    os.kill(sleeper, 19)
    while ProcFS().stat(str(sleeper)).state != "T":
        pass
    assert isinstance(attach.dump(ProcFS(), sleeper, Deadline(10)), Stack)
    refused = attach.dump(ProcFS(), sleeper, Deadline(10), native=True)
    assert isinstance(refused, Unavailable)
    assert "may be paused" in refused.reason
    assert ProcFS().stat(str(sleeper)).state == "T"


@pytest.mark.usefixtures("can_attach")
def test_our_own_py_spy_is_no_tracer(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fields(proc: ProcFS, of: str, *names: str) -> list[str | None]:
        return [{"State": "t (tracing stop)", "TracerPid": "4711"}[name] for name in names]

    monkeypatch.setattr(ProcFS, "fields", fields)
    assert process_states.is_traced(process_states.kernel_state(ProcFS(), sleeper))
    monkeypatch.setattr(process_states, "own_tracers", {4711})
    assert not process_states.is_traced(process_states.kernel_state(ProcFS(), sleeper))


@pytest.mark.parametrize(("pauses", "state"), [(3, "S"), (10_000, "t")])
def test_the_short_pause_of_an_observer_is_no_stop(pauses: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iter(range(100_000))

    def fields(proc: ProcFS, of: str, *names: str) -> list[str | None]:
        traced = next(reads) < pauses
        return ["t (tracing stop)" if traced else "S (sleeping)", "4711" if traced else "0"]

    monkeypatch.setattr(ProcFS, "fields", fields)
    assert process_states.settled_state(ProcFS(), os.getpid()).state == state


def test_what_was_not_read_in_time_is_said() -> None:
    deadline = Deadline(0.0)
    stack_of = attach.dump(ProcFS(), os.getpid(), deadline)
    assert stack_of == Unavailable(reason="no time left")
    assert deadline.missed() == [f"the stack of 1 process could not be read in time: pid {os.getpid()}"]


@pytest.mark.usefixtures("can_attach")
@pytest.mark.parametrize("off_cpu", [False, True])
def test_threads_of_a_container_have_the_numbers_that_they_have_here(off_cpu: bool) -> None:
    """py-spy prints those in the memory of the process, which are of its own pid namespace."""
    sleeps = "threading.Thread(target=time.sleep, args=(99,)).start(); print(1, flush=True); time.sleep(99)"
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*alone, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may not make a pid namespace")
    with subprocess.Popen(
        [*alone, sys.executable, "-c", f"import threading, time; {sleeps}"], stdout=subprocess.PIPE
    ) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline()
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            pid = int(children[0])
            stack = attach.dump(ProcFS(), pid, Deadline(30), off_cpu=off_cpu)
            assert isinstance(stack, Stack)
            assert sorted(thread.tid or 0 for thread in stack.threads) == ProcFS().tids(pid)
            assert pid not in threads_from_inside(ProcFS(), pid)
        finally:
            outer.kill()
    assert threads_from_inside(ProcFS(), os.getpid()) == {}
