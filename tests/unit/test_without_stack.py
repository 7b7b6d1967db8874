"""Ranks whose stacks could not be read: their clocks, the system calls of their threads, and torch's record decide, or nobody."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import (
    OF_ANOTHER_USER,
    AwaitedFile,
    Clocks,
    Connection,
    Connections,
    Environment,
    FlightRecorder,
    Holder,
    Interpreter,
    KernelThread,
    Process,
    Recorded,
    RecordedGroup,
    Unavailable,
)
from tests.unit.builders import rank, silent, snapshot

REFUSED = Unavailable(reason="permission denied (ptrace needs root)")
FUTEX = {"syscall": "futex", "timed": False}
SOCKET = (AwaitedFile(kind="socket", name="socket:[7]", inode=7),)


def recorder(made: int, *, waits: bool = False) -> FlightRecorder:
    """That a rank has made so many calls, the last one 60 s ago, and has finished it or not."""
    call = Recorded(seq=made, op="all_reduce", age_seconds=60.0, timeout_seconds=1800.0)
    group = RecordedGroup(
        name="0", default=True, issued=made, issued_before=made, pending=(call,) if waits else (),
        completed=None if waits else call,
    )  # fmt: skip
    return FlightRecorder(source="memory", age_seconds=0.0, groups=(group,), capacity=2000)


def unread(number: int, made: int, *, waits: bool = False, main: dict[str, Any] = FUTEX, **more: Any) -> Process:
    """A rank without a stack, whose main thread is so in the kernel; `beside` are its other threads."""
    pid, beside = 100 + number, more.pop("beside", ())
    values = {"state": "S", "cpu_ns": 0, "voluntary_switches": 0, "involuntary_switches": 0, "idle_seconds": 60.0}
    threads = [
        KernelThread(**{"tid": pid + at, "name": "python3", **values, **one}) for at, one in enumerate((main, *beside))
    ]
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=tuple(threads))
    more = {"recorder": recorder(made, waits=waits), "stack": REFUSED, "stack_before": REFUSED, **more}
    return rank(number, clocks=clocks, **more)


def behind(main: dict[str, Any] = FUTEX, **more: Any) -> Job:
    """The answer if rank 0 is in call 5, and rank 1 has made 4 and is so in the kernel."""
    others, patience = more.pop("others", ()), more.pop("patience", 30.0)
    world = 2 + len(others)
    ranks = (unread(0, 5, waits=True, world=world), unread(1, 4, main=main, world=world, **more), *others)
    return diagnose(snapshot(*ranks), patience=patience).jobs[0]


@pytest.mark.parametrize(
    ("environment", "commands"),
    [
        (OF_ANOTHER_USER, ["sudo hangdoc diagnose --pid 50"]),
        (Environment(variables={}), ["sudo hangdoc diagnose --pid 50", "hangdoc doctor"]),
    ],
)
def test_of_another_users_ranks_doctor_has_nothing_to_tell(
    environment: Environment | Unavailable, commands: list[str]
) -> None:
    """It would find that this user can read all of their own."""
    ranks = [replace(unread(number, 5, waits=True), environment=environment) for number in range(2)]
    finding = next(f for f in diagnose(snapshot(*ranks)).jobs[0].findings if f.summary.startswith("the stacks"))
    assert (list(finding.commands), "doctor" in finding.remedy) == (commands, len(commands) == 2)
    assert len({evidence.rank for evidence in finding.evidence if evidence.rank is not None}) == len(finding.evidence)


@pytest.mark.parametrize(
    ("rests", "sure"),
    [
        ((16.99, None), False),  # an observer makes all threads of a process run
        ((), False),
        ((16.99, 90.0), True),
    ],
)
def test_a_rank_may_have_waited_for_longer_than_it_has_not_run(rests: tuple[float | None, ...], sure: bool) -> None:
    main = {**FUTEX, "timed": True, "idle_seconds": 17.0}
    found = behind(main, beside=[{**FUTEX, "idle_seconds": seconds} for seconds in rests])
    (text,) = {one.text for each in found.findings for one in each.evidence if "it has not run for" in one.text}
    assert "it has not run for 17 s (in the kernel: futex)" in text
    assert ("it may have waited for longer: an observer may have made it run then" in text) is not sure


def test_the_rank_that_is_behind_is_blamed_if_it_waits_in_its_own_process() -> None:
    found = behind()
    assert found.verdict == "hung"
    leading = found.findings[0]
    assert (leading.code, leading.culprits, leading.victims, leading.confidence) == ("HD202", (1,), (0,), 0.5)
    assert any(REFUSED.reason in line.text for line in leading.evidence)
    assert found.ranks[0].operation is not None
    assert (found.ranks[0].operation.op, found.ranks[0].operation.seq) == ("all_reduce", 5)


def test_ranks_that_could_not_be_read_alike_have_one_line() -> None:
    unread = [rank(number, stack=REFUSED, stack_before=REFUSED, world=8) for number in range(8)]
    (job,) = diagnose(snapshot(*unread)).jobs
    (finding,) = (each for each in job.findings if each.code == "HD901")
    texts = [each.text for each in finding.evidence if each.probe in ("clocks", "stacks")]
    assert len(texts) == 1 and texts[0].endswith("(also ranks 1-7)")
    assert texts[0].count("CPU") <= 1


def test_before_the_patience_it_is_no_hang() -> None:
    assert behind(patience=90.0).verdict == "waiting"


@pytest.mark.parametrize(
    ("main", "more"),
    [
        ({**FUTEX, "timed": True, "timeout_seconds": 1800.0}, {}),  # it may be in a receive
        ({**FUTEX, "voluntary_switches": 16}, {}),
        ({"syscall": "clock_nanosleep", "timed": True, "sleep_seconds": 0.1, "voluntary_switches": 10}, {}),
        ({"syscall": "clock_nanosleep", "timed": True, "sleep_seconds": 20.0}, {}),
        ({"syscall": None, "wchan": "futex_do_wait"}, {}),
        ({"syscall": "poll", "files": SOCKET}, {}),
        (FUTEX, {"beside": ({"syscall": "clock_nanosleep", "sleep_seconds": 20.0},)}),
        (FUTEX, {"beside": ({"syscall": "poll", "files": SOCKET},)}),  # a server's thread, perhaps
        (FUTEX, {"beside": ({"name": "TP_", "syscall": "epoll_wait"},)}),
        (FUTEX, {"others": (rank(2, stack=REFUSED, stack_before=REFUSED, cpu=0.9, world=3),)}),
        (FUTEX, {"recorder": Unavailable(reason="permission denied")}),
    ],
)
def test_what_may_end_by_itself_or_by_another_rank_is_unknown(main: dict[str, Any], more: dict[str, Any]) -> None:
    found = behind(main, **more)
    assert found.verdict in ("unknown", "waiting"), found.findings
    assert not any(finding.severity == "error" for finding in found.findings)
    if found.verdict == "unknown" and found.ranks[0].operation is not None:
        named = found.findings[0]
        assert named.code == "HD901" and "for rank 1" in named.summary
        assert named.commands == ("sudo hangdoc diagnose --pid 50",)


@pytest.mark.parametrize(
    ("main", "culprits"),
    [
        ({"syscall": "clock_nanosleep", "timed": True, "sleep_seconds": 1e6}, (1,)),
        ({"syscall": "wait4", "timed": False}, (1,)),
        ({"syscall": "flock", "files": (AwaitedFile(kind="file", name="/data/lock", holders=()),)}, (1,)),
    ],
)
def test_what_the_kernel_shows_needs_no_stack(main: dict[str, Any], culprits: tuple[int, ...]) -> None:
    found = behind(main)
    assert (found.verdict, found.findings[0].culprits) == ("hung", culprits)


def test_a_pipe_of_its_own_is_no_hang_at_once() -> None:
    """Another of its threads may write to it, and their stacks are missing."""
    own = (AwaitedFile(kind="pipe", name="pipe:[9]", holders=(Holder(pid=101, name="python3", state="S"),)),)
    reads = {"syscall": "read", "timed": False, "files": own}
    assert behind(reads, patience=90.0).verdict == "waiting"
    assert behind(reads).verdict == "hung"


def test_a_program_that_is_over_is_named() -> None:
    """The memory of the rank has the thread that keeps it alive; its sockets then say nothing."""
    over = Interpreter(environment={}, globals=(), keeps_alive=("heartbeat",))
    found = behind(interpreter=over, beside=({"syscall": "poll", "files": SOCKET},))
    assert found.verdict == "hung"
    assert "thread heartbeat keeps the process alive" in found.findings[0].summary


def test_a_rank_that_asks_a_store_is_in_it() -> None:
    store = Connection(
        pid=101, namespace="net:[1]", state="ESTABLISHED", local_address="10.0.0.1", local_port=40_001,
        remote_address="10.0.0.1", remote_port=29500, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
        last_sent_ms=60_000, last_received_ms=60_000, inode=7,
    )  # fmt: skip
    ranks = (unread(0, 5, waits=True), unread(1, 4, main={"syscall": "poll", "timed": True, "files": SOCKET}))
    found = diagnose(snapshot(*ranks, connections=Connections(connections=(store,))), patience=30.0).jobs[0]
    assert (found.ranks[1].state, found.verdict, found.findings[0].culprits) == ("in-store", "hung", (1,))


@pytest.mark.parametrize("reason", ["not needed", "not looked at", "it has run since its stack was read 3.0 s ago"])
def test_a_rank_whose_stack_will_be_read_is_not_judged(reason: str) -> None:
    """A poll reads the stacks of some ranks only in the next one."""
    later = Unavailable(reason=reason)
    assert behind(stack=later, stack_before=later).verdict == "unknown"


def working(*, moved: int) -> Job:
    """The answer for two busy ranks without stacks, whose connections moved so many bytes."""
    busy = (rank(n, stack=REFUSED, stack_before=REFUSED, cpu=0.9) for n in range(2))
    pairs = tuple(replace(each, bytes_moved=moved) for each in silent(2, 0.0).connections)
    return diagnose(snapshot(*busy, connections=Connections(connections=pairs))).jobs[0]


def test_ranks_that_exchange_data_need_no_stack() -> None:
    """A healthy run has no finding about stacks that would show no more than that it works."""
    found = working(moved=1000)
    assert (found.verdict, found.findings) == ("healthy", ())


def test_busy_ranks_that_exchange_nothing_are_not_healthy_for_sure() -> None:
    """Who asks in a loop whether its call is done is busy, too."""
    found = working(moved=0)
    assert (found.verdict, [finding.code for finding in found.findings]) == ("unknown", ["HD901"])
    assert [view.label for view in found.ranks] == ["computing", "computing"]
    assert found.findings[0].evidence[0].text.startswith("uses 90% of a core; its stack could not be read")
