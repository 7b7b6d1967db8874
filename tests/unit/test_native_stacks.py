"""When a rank is paused for its C++ frames: only if neither its Python stack nor torch's record names what it waits in."""

import pytest
from msgspec.structs import replace

from hangdoc.observe.stacks import native_stacks
from hangdoc.observe.stacks.native_stacks import is_at_recorded_call, waits_outside_torch
from hangdoc.snapshot import (
    Clocks,
    FlightRecorder,
    Frame,
    Interpreter,
    KernelThread,
    OpenCalls,
    PythonThread,
    Recorded,
    RecordedGroup,
    Stack,
)
from tests.unit.builders import frame, stack

STEP = frame("Trainer.step", 40, "/home/me/train.py")
BACKWARD = frame("_engine_run_backward", 820, "/site-packages/torch/autograd/graph.py")
WAITS = frame("OpOverloadPacket.__call__", 1279, "/site-packages/torch/_ops.py")


def record(line: int, *, made_in_window: int = 0) -> FlightRecorder:
    """One call that is not finished, made at a line of `step`."""
    frames = (Frame(function="all_reduce", file="/site-packages/torch/distributed/distributed_c10d.py", line=1, library=True),
              Frame(function="step", file="/home/me/train.py", line=line))  # fmt: skip
    pending = Recorded(seq=5, op="all_reduce", age_seconds=20.0, frames=frames)
    group = RecordedGroup(name="0", issued=5, pending=(pending,))
    return FlightRecorder(source="memory", age_seconds=0.0, groups=(group,), entries_in_window=made_in_window)


@pytest.mark.parametrize(
    ("recorded", "at", "named"),
    [
        (record(40), stack(BACKWARD, STEP), True),
        (record(41), stack(BACKWARD, STEP), False),  # it made the call elsewhere, and may wait for another one
        (record(40, made_in_window=1), stack(BACKWARD, STEP), False),
        (record(40), stack(WAITS, STEP), False),  # a wait for the result of any earlier call
        (record(40), stack(BACKWARD), False),
        (None, stack(BACKWARD, STEP), False),
    ],
    ids=["at its line", "elsewhere", "moves", "in the dispatcher", "no line of the user", "no record"],
)
def test_a_recorded_call_at_the_line_of_the_thread_needs_no_pause(
    recorded: FlightRecorder | None, at: Stack, named: bool
) -> None:
    assert is_at_recorded_call(recorded, at) == named


@pytest.mark.parametrize(("line", "cpu", "stands"), [(40, 0.0, True), (40, 0.9, False), (41, 0.0, False)])
def test_a_worker_of_ray_train_stands_if_its_training_thread_does(line: int, cpu: float, stands: bool) -> None:
    """The main thread is in Ray's loop at each look. A native dump pauses the worker for a second."""
    loop = frame("Worker.main_loop", 1069, "/x/site-packages/ray/_private/worker.py", library=True)
    starts = "/x/site-packages/ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    target = frame("ThreadRunner.run.<locals>._run_target", 37, starts, library=True)

    def at(line: int) -> Stack:
        threads = (("MainThread", 100, (loop,)), ("TrainingThread", 101, (replace(STEP, line=line), target)))
        return Stack(
            at_seconds=0.0,
            threads=tuple(
                PythonThread(tid=tid, name=name, active=False, owns_gil=False, frames=frames)
                for name, tid, frames in threads
            ),
        )

    kernel = tuple(
        KernelThread(tid=tid, name="ray", state="S", cpu_ns=used, voluntary_switches=0, involuntary_switches=0)
        for tid, used in ((100, 10_000_000), (101, int(cpu * 1e9)))
    )
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=kernel)
    evidence = {"stack_before": at(40), "stack": at(line), "clocks": clocks}
    assert native_stacks.made_no_progress(100, evidence, 1.0) == stands


@pytest.mark.parametrize(
    ("call", "sleep", "outside"),
    [("clock_nanosleep", 60.0, True), ("clock_nanosleep", 0.01, False), ("wait4", None, True), ("futex", None, False)],
)
def test_a_long_sleep_and_a_wait_for_a_child_process_are_not_of_torch(
    call: str, sleep: float | None, outside: bool
) -> None:
    main = KernelThread(
        tid=100, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, syscall=call,
        whole_sleep_seconds=sleep,
    )  # fmt: skip
    at = stack(STEP)
    at = replace(at, threads=(replace(at.threads[0], tid=100),))
    assert waits_outside_torch(Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,)), at) == outside


@pytest.mark.parametrize(
    ("calls", "pending", "needed"),
    [
        ((), False, True),
        ((OpenCalls(worker="actor2", count=1),), False, False),
        ((OpenCalls(worker="a", count=1),), True, True),
    ],
)
def test_the_record_of_rpc_comes_before_a_pause(calls: tuple[OpenCalls, ...], pending: bool, needed: bool) -> None:
    """Each look paused a rank that waited for an answer, and the wait seemed to begin again."""
    waits = Recorded(seq=5, op="all_reduce", age_seconds=20.0)
    group = RecordedGroup(name="0", default=True, issued=5, pending=(waits,) if pending else ())
    evidence = {
        "interpreter": Interpreter(environment={}, globals=(), rpc_calls=calls),
        "recorder": FlightRecorder(source="memory", age_seconds=0.0, groups=(group,)),
        "clocks": Clocks(window_seconds=1.0, resolution_ns=1, threads=()),
    }
    waits = stack(frame("learn", 26, source="for f in futures: total += f.wait()"))
    assert native_stacks._needs_native(evidence, waits) is needed
    assert native_stacks._needs_native(evidence, stack(BACKWARD, frame("learn", 27)))  # DDP beside RPC
