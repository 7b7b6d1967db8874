"""Hosts that send summaries: the diagnosis of a run on two hosts is the one of all their evidence."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc import codec
from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.summary import summarized
from hangdoc.snapshot import (
    Connection,
    Connections,
    Counter,
    Frame,
    Group,
    Host,
    Interpreter,
    KernelThread,
    Loop,
    Process,
    Progress,
    Snapshot,
    merge,
)
from tests.unit.builders import c10d, frame, local, rank, train

_EVALUATION = Loop(
    line=50, end_line=60, header="for i, batch in enumerate(val_loader)", counters=("i",), every=1, start=0
)
_RESUMED = Loop(
    line=10, end_line=20, header="for step in range(start, n)", counters=("step",), every=1, begin="start", bound="n"
)


def _rank(number: int, *frames: Frame, counter: tuple[str, int] = ("step", 41), **more: Any) -> Process:
    name, value = counter
    function = "evaluate" if name == "i" else "train"
    counted = Counter(name=name, function=function, file="/home/me/train.py", before=value, after=value, looped=True)
    group = Group(address=4096 + number, name="0", ranks=(), default=True, backend="cpu:gloo")
    values: dict[str, Any] = {
        "world": 8,
        "local_world": 4,
        "interpreter": Interpreter(environment={}, globals=(), groups=(group,)),
        "progress": Progress(counters=(counted,)),
        "environment": {"RANK": str(number)},
    }
    return rank(number, *frames, **{**values, **more})


def _waits(number: int, **more: Any) -> Process:
    return _rank(number, *c10d("all_reduce"), train(15, locals=(local("step", 41), local("rank", number))), **more)


def _reads(number: int, **more: Any) -> Process:
    return _rank(number, frame("read", 9, "/home/me/data.py"), train(12, locals=(local("step", 41),)), **more)


def _evaluates(number: int) -> Process:
    inside = frame("evaluate", 55, loops=(_EVALUATION,), locals=(local("i", 3),))
    return _rank(number, *c10d("all_reduce"), inside, frame("main", 70), counter=("i", 3))


def _resumed(number: int, line: int, op: str, start: int, step: int) -> Process:
    variables = (local("step", step), local("start", start), local("n", 50))
    return _rank(number, *c10d(op), frame("train", line, loops=(_RESUMED,), locals=variables), counter=("step", step))


def _side_thread(number: int, idle: float) -> Process:
    """A rank that trains in another thread than the main one, which runs often."""
    process = _waits(number)
    worker = replace(process.stack.threads[0], tid=900 + number, name="train")  # type: ignore[union-attr]
    seen = replace(process.stack, threads=(worker,))  # type: ignore[type-var]
    threads = tuple(
        KernelThread(
            tid=tid, name=name, state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, idle_seconds=age
        )
        for tid, name, age in ((100 + number, "python3", 0.2), (900 + number, "train", idle))
    )
    return replace(process, stack=seen, stack_before=seen, clocks=replace(process.clocks, threads=threads))  # type: ignore[type-var]


def _connections(ranks: int, on: Callable[[int], int]) -> list[Connection]:
    found = []
    for a, b in ((a, b) for a in range(ranks) for b in range(ranks) if a != b):
        low, high = 40_000 + min(a, b) * 100 + max(a, b), 50_000 + min(a, b) * 100 + max(a, b)
        mine, theirs = (low, high) if a < b else (high, low)
        found.append(
            Connection(
                pid=100 + a, namespace="net:[1]", state="ESTABLISHED", local_address=f"10.0.0.{on(a)}", local_port=mine,
                remote_address=f"10.0.0.{on(b)}", remote_port=theirs, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
                last_sent_ms=60_000, last_received_ms=60_000,
            )
        )  # fmt: skip
    return found


def _answers(ranks: list[Process], *, connected: bool = True) -> tuple[Job, Job, int]:
    """The run's diagnosis from all evidence, the one from the summaries, and how many ranks were alike."""
    pairs = _connections(len(ranks), lambda number: number // 4) if connected else []
    whole, short = [], []
    for at in (0, 1):
        processes = tuple(ranks[4 * at : 4 * at + 4])
        pids = {process.pid for process in processes}
        host = Host(
            name=f"n{at}", machine_id=f"m{at}", taken_at="2026-01-01T00:00:00+00:00", window_seconds=1.0, elapsed_seconds=1.2,
            processes=processes, connections=Connections(connections=tuple(c for c in pairs if c.pid in pids)),
        )  # fmt: skip
        one = Snapshot(hangdoc="test", hosts=(host,))
        whole.append(one)
        short.append(codec.decode(codec.encode(summarized(one))))
    alike = sum(process.like is not None for one in short for process in one.hosts[0].processes)
    (expected,), (found,) = diagnose(merge(tuple(whole))).jobs, diagnose(merge(tuple(short))).jobs
    views = tuple(replace(view, like=None) for view in found.ranks)
    return expected, replace(found, ranks=views), alike


_SITUATIONS: dict[str, list[Process]] = {
    # Ranks without a launcher look like copies that a fork made, unless their threads show that they are none.
    "no-launcher": [*(_waits(n, owner=None, ppid=1) for n in range(7)), _reads(7, owner=None, ppid=1)],
    "orphans": [*(_waits(n, launcher_gone=True, ppid=1, resident_bytes=(n + 1) << 30) for n in range(7)), _reads(7)],
    # Most ranks are in the evaluation, and few of them sent their evidence.
    "loop-of-the-majority": [*(_evaluates(n) for n in range(5)), *(_reads(n) for n in range(5, 8))],
    "begins-differ": [
        *(_resumed(n, 25, "barrier", 40 + n % 3, 49) for n in range(4)),
        *(_resumed(n, 15, "all_reduce", 30, 40) for n in range(4, 8)),
    ],
    "one-end": [
        *(_resumed(n, 25, "barrier", 40, 49) for n in range(4)), *(_resumed(n, 15, "all_reduce", 30, 40) for n in range(4, 8))
    ],
    "a-rank-that-is-gone": [_waits(n, local_world=None, world=8) for n in range(7)],
}  # fmt: skip


@pytest.mark.parametrize("name", _SITUATIONS)
def test_the_diagnosis_is_the_same(name: str) -> None:
    expected, found, alike = _answers(_SITUATIONS[name])
    assert found == expected
    assert alike > 1
    assert expected.verdict == "hung"


@pytest.mark.parametrize(("idle", "verdict"), [(90.0, "hung"), (3.0, "waiting")])
def test_the_wait_is_as_old_as_the_training_threads(idle: float, verdict: str) -> None:
    expected, found, alike = _answers([*(_side_thread(n, idle) for n in range(7)), _reads(7)], connected=False)
    assert found == expected
    assert (alike, found.verdict) == (5, verdict)


def test_a_rank_whose_connections_move_bytes_is_whole() -> None:
    """With whom it exchanges them, only all hosts together show."""
    host = Host(
        name="n0", taken_at="2026-01-01T00:00:00+00:00", window_seconds=1.0, elapsed_seconds=1.2,
        processes=tuple(_waits(n) for n in range(4)),
        connections=Connections(connections=tuple(
            replace(c, bytes_moved=4096 * (c.pid == 102)) for c in _connections(4, lambda _: 0) if c.remote_port != 40_001
        )),
    )  # fmt: skip
    found = summarized(Snapshot(hangdoc="test", hosts=(host,))).hosts[0].processes
    assert next(process.like for process in found if process.pid == 102) is None
