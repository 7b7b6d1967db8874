"""Who is a straggler: a server between requests, waits between calls, few calls, one long wait, bursts."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.build.runs import build_runs
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ledger.lags import pace
from hangdoc.render import words
from hangdoc.snapshot import (
    CallForm,
    Connection,
    Connections,
    FlightRecorder,
    Process,
    PythonThread,
    Snapshot,
    Stack,
    Unavailable,
)
from tests.unit.builders import frame, rank, silent, snapshot, train
from tests.unit.recordings import T0_US, history_of, recorder
from tests.unit.test_pace import _STEP_US, _STEPS, _WALL_US, BARRIER, BUCKET, LOSS, METRICS, findings, trains

_NOT_READ = Unavailable(reason="not needed")


def serves(unanswered_ms: int | None, *, stacks: bool) -> Snapshot:
    """Rank 0 hands out what the others compute, each time 52 ms later than they come to it. It listens on port 8471, at which it
    has a connection from outside: with a request since `unanswered_ms`, or with an answer to the last one."""
    ranks = [trains(number, 52 if number == 0 else 0, form=METRICS) for number in range(4)]
    link = replace(silent(4, 0.0).connections[0], pid=100, local_address="127.0.0.1", local_port=8471)
    listens = replace(link, state="LISTEN", remote_address="::", remote_port=0)
    sent = {"last_received_ms": unanswered_ms, "last_sent_ms": 9000} if unanswered_ms else {"last_sent_ms": 5}
    client: Connection = replace(link, remote_address="127.0.0.1", remote_port=33210, **sent)
    if stacks:
        server = PythonThread(
            tid=7, name="http", active=False, owns_gil=False,
            frames=(frame("BaseServer.serve_forever", 233, "/usr/lib/python3.11/socketserver.py", library=True),),
        )  # fmt: skip
        assert isinstance(ranks[0].stack, Stack)
        ranks[0] = replace(ranks[0], stack=replace(ranks[0].stack, threads=(*ranks[0].stack.threads, server)))
    else:
        ranks = [replace(each, stack=_NOT_READ, stack_before=_NOT_READ) for each in ranks]
    connections = Connections(connections=(*silent(4, 0.0).connections, listens, client))
    return snapshot(*ranks, connections=connections, wall_us=_WALL_US)


@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.parametrize(("unanswered_ms", "late"), [(600, [(0,)]), (20, []), (None, [])])
def test_a_late_rank_with_requests_is_not_idle(unanswered_ms: int | None, stacks: bool, late: list[tuple[int]]) -> None:
    """Whether it was a server was known from its stack only, and no server was ever late in what it hands out."""
    found = findings(diagnose(serves(unanswered_ms, stacks=stacks)), "HD601")
    assert [finding.culprits for finding in found] == late


def test_transfers_between_calls_are_no_waits_for_something_else() -> None:
    """Both ranks make a call of another group each 3 ms, and use little of a core. Their loaders are not slow."""

    def computes(number: int) -> Process:
        process = trains(number, 22 * number, ranks=2)
        assert isinstance(process.recorder, FlightRecorder)
        forms = {form: at for at, form in enumerate(process.recorder.forms)}
        times = [T0_US + step * _STEP_US + at * 3_000 for step in range(_STEPS) for at in range(8, 22)]
        entries = [(at + 1, LOSS, time, False) for at, time in enumerate(times)]
        group = history_of(entries, name="tp", wall_us=_WALL_US, forms=forms, before=len(entries) - 200, ranks=(0, 1))
        groups = (*process.recorder.groups, group)
        return replace(process, recorder=replace(process.recorder, forms=tuple(forms), groups=groups))

    (finding,) = findings(diagnose(snapshot(*map(computes, (0, 1)), silence=0.0, wall_us=_WALL_US)), "HD601")
    assert finding.confidence == 0.9 and "slower than the others" in finding.summary


def test_a_late_rank_in_a_short_sleep_names_its_line() -> None:
    ranks = [trains(number, 52 * (number == 2)) for number in range(4)]
    sleeping = rank(2, train(18, source="time.sleep(0.05)"))
    ranks[2] = replace(ranks[2], stack=sleeping.stack, stack_before=sleeping.stack)
    (finding,) = findings(diagnose(snapshot(*ranks, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert finding.summary.endswith("; when its stack was read, rank 2 was in the sleep at me/train.py:18")
    assert (finding.remedy or "").startswith("Look at the line that sleeps.")


def test_only_a_rank_that_waited_long_has_the_long_wait() -> None:
    seconds = 120
    late = _WALL_US + seconds * 1_000_000
    (run,) = build_runs(
        snapshot(*(trains(n, ranks=2, stopped_us=seconds * 1_000_000) for n in range(2)), silence=0.0, wall_us=late), 30
    )
    measured = pace(run.ledger.groups[0])
    assert measured is not None and measured.long_waits == (1, seconds, (1,))
    assert [lag.long_waits.number for lag in measured.lags] == [1, 0]


def bursts(steps: int) -> Diagnosis:
    """Each step has 20 calls within 40 ms. Then, rank 1 sleeps for 6 s before the next one, in which rank 0 waits for it."""
    last = T0_US + steps * 6_040_000

    def judges(number: int) -> Process:
        entries = [
            (20 * step + at + 1, (LOSS if at else BUCKET), T0_US + step * 6_040_000 + at * 2_000 + late, False)
            for step in range(steps)
            for at in range(20)
            for late in (6_000_000 * (at > 0 or number),)
        ]
        forms = {}
        group = history_of(entries, wall_us=last, forms=forms, before=20 * steps - 3)
        return replace(trains(number, ranks=2), recorder=recorder(group, forms=forms))

    return diagnose(snapshot(*map(judges, (0, 1)), silence=0.0, wall_us=last))


@pytest.mark.parametrize("steps", [5, 12])
def test_the_pace_of_bursts_has_the_pauses_between_them(steps: int) -> None:
    """It was that of the last burst: 500 calls per second."""
    (job,) = bursts(steps).jobs
    assert job.pace is not None
    assert job.pace.calls_per_second == pytest.approx(20 / 6.04, rel=0.05)


def test_few_steps_do_not_tell_whether_a_rank_is_slow() -> None:
    """After five, in each of which one rank had waited 6 s for the other, no single rank slowed the others much."""
    (job,) = bursts(5).jobs
    assert words.pace(job).endswith("; these are too few calls to tell whether one rank slows the others")
    assert not job.findings
    (job,) = bursts(12).jobs
    assert "mostly for rank 1 (6000 ms behind" in words.pace(job)


def saves(savers: Sequence[int]) -> Diagnosis:
    """After each 20 steps, one of the ranks writes a checkpoint for 20 s, for which the others wait in a barrier."""

    def process(number: int) -> Process:
        entries, at = [], T0_US
        for step in range(20 * len(savers) + 5):
            at += 240_000
            entries.append((len(entries) + 1, LOSS, at + number * 1000, False))
            if step % 20 == 19 and step // 20 < len(savers):
                entries.append(
                    (len(entries) + 1, BARRIER, at + 10_000 + 20_000_000 * (number == savers[step // 20]), False)
                )
                at += 20_000_000
        forms: dict[CallForm, int] = {}
        group = history_of(entries, wall_us=at, forms=forms, before=len(entries) - 3)
        return replace(trains(number), recorder=recorder(group, forms=forms))

    wall_us = T0_US + len(savers) * 20_000_000 + (20 * len(savers) + 5) * 240_000
    return diagnose(snapshot(*map(process, range(4)), silence=0.0, wall_us=wall_us))


@pytest.mark.parametrize("count", [2, 3])
def test_a_few_long_waits_for_one_rank_name_it(count: int) -> None:
    """The ranks waited for 76 % of the time, and no single rank slowed the others much."""
    (job,) = saves([0] * count).jobs
    assert job.pace is not None and job.pace.slowest is None and not job.findings
    assert (job.pace.long_waits, job.pace.long_wait_seconds, job.pace.long_wait_ranks) == (count, 20.0, (0,))
    assert job.pace.waited_share < 0.1
    assert words.pace(job).endswith(
        f"% of the time apart from {count} waits of up to 20 s for rank 0 in the run; these are too few calls to tell "
        "whether one rank slows the others"
    )


def test_long_waits_for_different_ranks_are_waits_for_none_of_them() -> None:
    (job,) = saves([0, 1, 2]).jobs
    assert job.pace is not None and job.pace.long_waits == 0 and job.pace.waited_share > 0.5
    assert " apart from " not in words.pace(job)


def test_the_waits_of_all_steps_are_no_long_waits() -> None:
    """Of a young run in steps of 5 s in which one rank is always late, the ranks waited 0 % of the time."""

    def process(number: int) -> Process:
        entries, at = [], T0_US
        for _ in range(8):
            late = at + 5_000_000
            made = late if number == 3 else at
            entries += [(len(entries) + 1, BUCKET, made, False), (len(entries) + 2, LOSS, late + 1000, False)]
            entries.append((len(entries) + 1, METRICS, late + 2000, False))
            at = late + 100_000
        forms: dict[CallForm, int] = {}
        group = history_of(entries, wall_us=at, forms=forms, before=len(entries) - 3)
        return replace(trains(number), recorder=recorder(group, forms=forms))

    (job,) = diagnose(snapshot(*map(process, range(4)), silence=0.0, wall_us=T0_US + 8 * 5_100_000)).jobs
    assert job.pace is not None and (job.pace.long_waits, job.pace.slowest) == (0, None)
    assert job.pace.waited_share > 0.9


@pytest.mark.parametrize(("late_steps", "late"), [(10, []), (12, [(1,)])])
def test_a_rank_that_is_the_last_in_most_of_few_calls_may_be_so_by_chance(
    late_steps: int, late: list[tuple[int]]
) -> None:
    """Of twelve calls, one of two equal ranks is the last in ten or more once in 26 times."""

    def process(number: int) -> Process:
        entries = [
            (step + 1, LOSS, T0_US + step * 300_000 + 200_000 * ((step < late_steps) == number), False)
            for step in range(12)
        ]
        forms: dict[CallForm, int] = {}
        group = history_of(entries, wall_us=T0_US + 12 * 300_000, forms=forms, before=9)
        return replace(trains(number, ranks=2), recorder=recorder(group, forms=forms))

    diagnosis = diagnose(snapshot(*map(process, (0, 1)), silence=0.0, wall_us=T0_US + 12 * 300_000))
    assert [finding.culprits for finding in findings(diagnosis, "HD601")] == late


def test_a_call_in_which_ranks_still_wait_is_not_compared() -> None:
    """Of two ranks that wait in different calls, none came to that of the other one late."""
    made = [(step + 1, LOSS, T0_US + step * 300_000, False) for step in range(20)]

    def process(number: int) -> Process:
        entries = [*made, (21, BARRIER if number else LOSS, T0_US + 6_000_000, True)]
        forms: dict[CallForm, int] = {}
        group = history_of(entries, wall_us=T0_US + 60_000_000, forms=forms, before=21)
        return replace(trains(number, ranks=2), recorder=recorder(group, forms=forms))

    (job,) = diagnose(snapshot(*map(process, (0, 1)), wall_us=T0_US + 60_000_000)).jobs
    assert job.past is not None and (job.past.of_calls, job.past.operations) == (20, ("all_reduce",))
