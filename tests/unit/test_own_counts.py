"""Ranks that count their calls or batches make progress, and need no stack."""

import pytest
from msgspec.structs import replace

from hangdoc.observe.kernel.clocks import CpuClocks
from hangdoc.observe.look.deep_reader import DeepReader, Readings
from hangdoc.observe.torch.recorded_progress import has_counted, has_just_called
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks import iterators
from hangdoc.snapshot import (
    FlightRecorder,
    Loader,
    Loops,
    Recorded,
    RecordedGroup,
    Stack,
    Unavailable,
)
from tests.unit.builders import TORCH, c10d, frame, rank, snapshot, stack, train

NO = Unavailable(reason="not needed")


def record(issued: int | None, before: int | None, age: float | None = 0.1, source: str = "memory") -> FlightRecorder:
    last = Recorded(seq=issued or 0, op="all_reduce", age_seconds=age)
    group = RecordedGroup(name="0", default=True, issued=issued, issued_before=before, completed=last)
    return FlightRecorder(source=source, age_seconds=0.0, groups=(group,))


def loops(done: int, before: int | None) -> Loops:
    return Loops(loaders=(Loader(kind="DataLoader", done=done, done_before=before),))


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"recorder": record(7, 3)}, True),
        ({"recorder": record(7, 7)}, False),
        ({"recorder": record(7, None)}, False),  # read once
        ({"recorder": record(None, None)}, False),
        ({"recorder": NO, "loops": loops(5, 4)}, False),  # an evaluation, for which the others wait
        ({}, False),
    ],
)
def test_what_a_rank_has_counted(fields: dict[str, object], counted: bool) -> None:
    assert has_counted(fields) is counted


def test_a_rank_that_hangs_in_a_call_while_a_thread_makes_others_is_read() -> None:
    hanging = Recorded(seq=3, op="all_reduce", age_seconds=600.0)
    beats = record(7, 3)
    assert has_counted({"recorder": beats})
    assert not has_counted(
        {"recorder": replace(beats, groups=(*beats.groups, RecordedGroup(name="1", pending=(hanging,))))}
    )


def test_a_recent_call_lets_a_rank_be_taken_to_move() -> None:
    assert has_just_called(record(7, None, 0.5), 1.0)
    assert not has_just_called(record(7, None, 1.5), 1.0)
    assert not has_just_called(record(7, None, None), 1.0)
    waiting = Recorded(seq=8, op="barrier", age_seconds=0.3)
    group = replace(record(7, None, 0.4).groups[0], pending=(waiting,))
    assert not has_just_called(replace(record(7, None), groups=(group,)), 1.0)
    assert not has_just_called(record(7, None, 0.5, source="watchdog"), 1.0)  # a dump is of another time
    assert not has_just_called(NO, 1.0)


def test_the_stack_of_a_rank_that_has_counted_since_is_dropped() -> None:
    """The rank is somewhere else now. What its memory held is kept."""
    reader = DeepReader(CpuClocks())
    seen = stack(*c10d("all_reduce"), train(5))
    reader.readings[10] = Readings(10, 1, 0.0, {}, seen, seen, native_tried=True, off_cpu=True, slow={"runtime": NO})
    reader.drop_stack(10)
    readings = reader.readings[10]
    assert not isinstance(readings.stack, Stack)
    assert not isinstance(readings.stack_before, Stack)
    assert (readings.off_cpu, readings.native_tried, readings.slow) == (False, False, {"runtime": NO})
    assert readings.out_of_date({})
    reader.drop_stack(11)  # one that was never read


@pytest.mark.parametrize(
    ("kind", "asked", "age", "state"),
    [
        ("_MultiProcessingDataLoaderIter", True, 0.0, "loading-data"),
        ("_MultiProcessingDataLoaderIter", False, 0.0, "computing"),
        ("_MultiProcessingDataLoaderIter", None, 0.0, "computing"),  # an older bundle
        ("_MultiProcessingDataLoaderIter", True, 20.0, "computing"),  # in an earlier look of `top`
        ("range_iterator", True, 0.0, "computing"),
    ],
)
def test_a_rank_that_makes_calls_and_waits_for_its_next_batch_loads_data(
    kind: str, asked: bool | None, age: float, state: str
) -> None:
    seen = Loops(loaders=(Loader(kind=kind, done=5, done_before=4, begins=10, asked=asked),), seconds_ago=age)
    moves = {"stack": NO, "stack_before": NO, "recorder": record(7, 3), "loops": seen, "deep_seconds_ago": 5.0}
    ranks = (replace(rank(number, train(9)), **moves) for number in (0, 1))
    (job,) = diagnose(snapshot(*ranks), patience=3.0).jobs
    assert (job.verdict, [view.state for view in job.ranks]) == ("healthy", [state, state])


def test_a_rank_that_made_calls_until_the_poll_before_is_not_unknown() -> None:
    """It was not its turn to be read, and top said: could not be read: it makes progress."""
    seen = replace(
        rank(1, train(9), world=3), stack=NO, stack_before=NO, recorder=record(7, 7), counted_seconds_ago=1.0
    )
    waiting = [rank(number, *c10d("all_reduce"), train(14), world=3) for number in (0, 2)]
    (job,) = diagnose(snapshot(*waiting, seen), patience=3.0).jobs
    assert (job.verdict, "HD901" in {finding.code for finding in job.findings}) == ("waiting", False)
    assert (job.ranks[1].label, job.ranks[1].progress) == (
        "computing",
        "it made calls until 1.0 s ago, and has run since",
    )


def test_a_rank_that_was_read_once_since_it_made_calls_is_waited_for() -> None:
    """It evaluates, with a loader of its own. Whether batches arrive shows only with the next reading."""
    loads = frame("_SingleProcessDataLoaderIter._next_data", 765, TORCH + "utils/data/dataloader.py", library=True)
    seen = replace(rank(1, loads, train(9), world=3), stack_before=NO, deep_seconds_ago=0.01)
    waiting = [rank(number, *c10d("all_reduce"), train(14), world=3) for number in (0, 2)]
    for ago, verdict in ((1.0, "waiting"), (None, "unknown")):
        (job,) = diagnose(snapshot(*waiting, replace(seen, counted_seconds_ago=ago)), patience=3.0).jobs
        assert (job.verdict, job.ranks[1].state) == (verdict, "loading-data")


@pytest.mark.parametrize("fields", [{"recorder": record(7, 3)}])
def test_others_wait_for_a_rank_that_counts(fields: dict[str, object]) -> None:
    """Its stack was not read, but it makes progress: the run does not hang, and nothing is missing."""
    counting = replace(rank(1, train(9), world=3), stack=NO, stack_before=NO, **fields)
    waiting = [rank(number, *c10d("all_reduce"), train(14), world=3) for number in (0, 2)]
    (job,) = diagnose(snapshot(*waiting, counting), patience=3.0).jobs
    assert (job.verdict, [finding.code for finding in job.findings if finding.code == "HD901"]) == ("waiting", [])
    assert job.ranks[1].label == "computing"
    still = replace(counting, loops=NO, recorder=NO)
    (job,) = diagnose(snapshot(*waiting, still), patience=3.0).jobs
    assert "HD901" in {finding.code for finding in job.findings}


@pytest.mark.parametrize(
    ("around", "found"),
    [
        ([("range_iterator", 1, 10, 27)], 27),
        ([("range_iterator", 1, 10, 27), ("list_iterator", 2, 11, 1)], None),  # several passes in a round
        ([("range_iterator", 1, 0, 27)], None),  # no `for` is known to go over it
        ([], None),
    ],
)
def test_the_round_around_a_pass_is_that_of_a_loop_over_numbers(
    around: list[tuple[str, int, int, int]], found: int | None
) -> None:
    """A poll reads the iterators of a rank that moves, and not its stack."""
    outer = (
        Loader(kind=kind, done=done, depth=depth, begins=begins, file="t.py", function="fit")
        for kind, depth, begins, done in around
    )
    inner = Loader(
        kind="_SingleProcessDataLoaderIter",
        done=3,
        total=10,
        pass_id=5,
        depth=3,
        begins=20,
        file="t.py",
        function="train",
    )
    process = rank(0, *c10d("all_reduce"), train(12), loops=Loops(loaders=(*outer, inner)))
    assert iterators.find_round(process, 5) == found
    assert iterators.find_round(process, 6) is None and iterators.find_round(process, None) is None
