"""One user's processes, as many and as slow and large as they like, take a share of a look and not the evidence of others."""

import json
import os
import threading
import time

import pytest

from hangdoc.observe.access import isolation, shares
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.isolation import Isolation
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import file_holders
from hangdoc.observe.look import observe
from hangdoc.observe.outside import awaited_processes
from hangdoc.observe.stacks import attach, pyspy, python_stacks
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Clocks, Process, Stack, Unavailable
from tests.hostile.users import MALLORY, VICTIM

PROC = ProcFS()
FIRST = 1 << 23
"""A pid that no process has: more than the kernel's PID_MAX_LIMIT."""


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int]:
    """Forty processes of Mallory, and one of the victim, which comes last."""
    pids = list(range(FIRST, FIRST + 40))
    users = dict.fromkeys(pids, MALLORY) | {FIRST + 40: VICTIM}
    monkeypatch.setattr(ProcFS, "user", lambda self, pid: users.get(pid))
    return pids, FIRST + 40


def observation(*pids: int, seconds: float) -> Observation:
    targets = {
        pid: Target(pid=pid, ppid=1, role="rank", name="python3", argv=(), state="S", start_ticks=0) for pid in pids
    }
    return Observation(proc=PROC, deadline=Deadline(seconds), window=0.1, native="never", targets=targets)


def test_stacks_that_take_forever_take_a_share(crowd: tuple[list[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each py-spy were stopped: it takes as long as it may."""
    pids, victim = crowd
    seconds: dict[int, float] = {}
    began = time.monotonic()

    def dump(proc: ProcFS, pid: int, deadline: Deadline, *, off_cpu: bool) -> Stack | Unavailable:
        if pid == victim:
            seconds[pid] = time.monotonic() - began
            return Stack(at_seconds=0.0, threads=())
        time.sleep(deadline.remaining(6.0))
        return Unavailable(reason="too late")

    monkeypatch.setattr(attach, "dump", dump)
    seen = observation(*pids, victim, seconds=8.0)
    read = python_stacks.dump_each(seen, seen.targets.values(), set())
    assert isinstance(read[victim], Stack)
    assert seconds[victim] < 1.0
    assert seen.deadline.remaining() > 3.0, "the rest of the look has time"
    assert read.keys() == seen.targets.keys()
    assert {one.reason for one in read.values() if isinstance(one, Unavailable)} == {shares.SHARE_TAKEN}


def test_a_stack_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never, stuck, good = threading.Event(), FIRST + 100, FIRST + 101
    monkeypatch.setattr(
        attach,
        "dump",
        lambda proc, pid, deadline, off_cpu: never.wait() if pid == stuck else Stack(at_seconds=0.0, threads=()),
    )
    seen = observation(stuck, good, seconds=0.5)
    try:
        read = python_stacks.dump_each(seen, seen.targets.values(), set())
        assert seen.deadline.elapsed() < 5.0
        assert isinstance(read[stuck], Unavailable)
        assert isinstance(read[good], Stack)
    finally:
        never.set()


def test_users_take_turns(crowd: tuple[list[int], int]) -> None:
    pids, victim = crowd
    order: list[int] = []

    def read(pid: int) -> int:
        order.append(pid)
        time.sleep(0.06)
        return pid

    readings = Isolation(PROC)
    look = Deadline(3.0)
    readings.about([*pids, victim], look)
    result = readings.read_each([*pids, victim], read, look)
    assert order.index(victim) < 6
    assert result[victim] == victim
    assert len(order) < 30, "a share of half of the time"
    assert {one.reason for one in result.values() if isinstance(one, Unavailable)} == {shares.SHARE_TAKEN}
    (problem,) = readings.take_problems()
    assert problem == f"some processes of uid {MALLORY} were not read: {shares.SHARE_TAKEN}"


def test_one_user_alone_may_take_all(crowd: tuple[list[int], int]) -> None:
    pids, _ = crowd
    readings, look = Isolation(PROC), Deadline(2.0)
    readings.about(pids, look)
    result = readings.read_each(pids, lambda pid: time.sleep(0.03), look)
    assert not [one for one in result.values() if isinstance(one, Unavailable)]


def test_a_process_that_has_ended_takes_no_share(crowd: tuple[list[int], int]) -> None:
    """It has no user any more. So one user with many ranks, of which one had ended, was refused after a quarter of the look: the
    stacks of a frozen run had no source lines, and its cause was another one in the next look."""
    pids, victim = crowd
    readings, look = Isolation(PROC), Deadline(2.0)
    readings.about([*pids, victim + 1], look)
    result = readings.read_each(pids, lambda pid: time.sleep(0.03), look)
    assert not [one for one in result.values() if isinstance(one, Unavailable)]


def test_memory_is_charged_to_the_user(crowd: tuple[list[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    pids, victim = crowd
    monkeypatch.setattr(shares, "ceiling_bytes", lambda proc: 64 << 20)
    monkeypatch.setattr(isolation, "_QUICK_SECONDS", 0.0)
    kept: list[bytes] = []

    def read(pid: int) -> int:
        if pid != victim:
            kept.append(os.urandom(4 << 20))
        return pid

    look = Deadline(60.0)
    readings = Isolation(PROC)
    readings.about([*pids, victim], look)
    first = readings.read_each(pids, read, look)
    assert [one for one in first.values() if isinstance(one, Unavailable)]
    again = readings.read_each([*pids, victim], read, look)
    assert again[victim] == victim, "the memory of another user is not the victim's"
    assert len(kept) <= 20


def test_readings_that_never_end_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(isolation, "_EACH_SECONDS", 0.2)
    monkeypatch.setattr(isolation, "_LATER_SECONDS", 0.2)
    never, begun = threading.Event(), []

    def read(pid: int) -> None:
        begun.append(pid)
        never.wait()

    readings = Isolation(PROC)
    try:
        for _ in range(3):
            readings.read_each((FIRST, FIRST + 1), read, Deadline(10.0))
        assert begun == [FIRST, FIRST + 1]
        assert readings.gave_up()
    finally:
        never.set()
    until = time.monotonic() + 10
    while len(begun) < 4:
        assert time.monotonic() < until, "it is tried again when the earlier reading has ended"
        readings.read_each((FIRST, FIRST + 1), read, Deadline(10.0))
    assert not readings.gave_up()


def test_what_is_kept_of_a_stack_is_bounded() -> None:
    variable = {"name": "v" * 200, "addr": 1, "arg": False, "repr": "x" * 200}
    frame = {"name": "f", "filename": "/a.py", "line": 1, "locals": [variable] * 80}
    threads = [{"thread_name": f"T{number}", "os_thread_id": number, "frames": [frame] * 60} for number in range(6)]
    main = {"thread_name": "MainThread", "os_thread_id": 7, "frames": [{**frame, "locals": [variable] * 3}] * 50}
    stack = pyspy.parse(json.dumps([*threads, main]).encode(), 0.0)
    texts = [len(one.name) + len(one.text) for thread in stack.threads for one in _variables(thread.frames)]
    assert sum(texts) < 3 << 20
    assert [thread.tid for thread in stack.threads] == [*range(6), 7]
    assert len(list(_variables(stack.threads[-1].frames))) == 150, "the main thread comes first"
    assert all(len(thread.frames) == 60 for thread in stack.threads[:-1])
    deep = pyspy.parse(json.dumps([{**main, "frames": [{**frame, "locals": []}] * 20_000}]).encode(), 0.0)
    assert len(deep.threads[0].frames) == 6_000


def _variables(frames):  # type: ignore[no-untyped-def]
    return (variable for frame in frames for variable in frame.locals)


# --- searches on behalf of a process -------------------------------------------------------------------------------------------


@pytest.fixture
def slow_host(crowd: tuple[list[int], int], monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int]:
    """Reading the open files of each of Mallory's processes takes a tenth of a second."""
    pids, victim = crowd

    def links(self: ProcFS, name: str, most: int | None = None) -> dict[str, str]:
        if name != f"{victim}/fd":
            time.sleep(0.1)
        return {"3": "pipe:[7]"}

    monkeypatch.setattr(ProcFS, "pids", lambda self: [*pids, victim])
    monkeypatch.setattr(ProcFS, "links", links)
    monkeypatch.setattr(file_holders, "_read_holder", lambda proc, pid: pid)
    return crowd


def test_a_search_has_a_time_of_its_own(slow_host: tuple[list[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither takes the time for reading the process for which it searches, nor that for the processes of others."""
    _, victim = slow_host
    monkeypatch.setattr(isolation, "_SEARCH_SECONDS", 0.5)
    monkeypatch.setattr(isolation.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    readings = Isolation(PROC)
    look = Deadline(30.0)

    def search(pid: int) -> object:
        return "its stack", file_holders.with_files(PROC, lambda pid, links: pid == victim)

    began = time.monotonic()
    result = readings.read_each([FIRST + 99], search, look, each_seconds=0.3)
    assert result == {FIRST + 99: ("its stack", (victim,))}
    assert time.monotonic() - began < 2.0
    assert readings.take_problems() == [f"pid {FIRST + 99}: who holds what it waits for could not be searched in time"]


def test_a_search_without_end_leaves_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    never, pid = threading.Event(), FIRST + 102
    monkeypatch.setattr(awaited_processes, "named", lambda *_, **__: never.wait())
    monkeypatch.setattr(isolation, "_EACH_SECONDS", 0.5)
    monkeypatch.setattr(isolation.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    seen = observation(pid, seconds=0.6)
    kept = Stack(at_seconds=0.0, threads=()), Clocks(window_seconds=1.0, resolution_ns=1, threads=())

    def build(target: Target) -> Process:
        return Process(
            pid=target.pid,
            ppid=1,
            role="rank",
            name="python3",
            argv=(),
            state="S",
            started_seconds_ago=9.0,
            stack=kept[0],
            clocks=kept[1],
        )

    try:
        (process,) = observe.each_process(seen, build)
    finally:
        never.set()
    assert (process.stack, process.clocks) == kept
    assert any("who holds what it waits for could not be searched" in problem for problem in seen.late)
    again = isolation.shared.read_each([pid], lambda pid: -pid, Deadline(5.0))
    assert again == {pid: -pid}, "and the process is still read"
