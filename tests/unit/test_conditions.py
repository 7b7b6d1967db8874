"""Which conditions of a script single ranks out, by name and by value."""

from collections.abc import Mapping

import pytest

from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Local, Process
from tests.unit.builders import c10d, local, rank, snapshot, train


def found(values: Mapping[str, object]) -> tuple[Local, ...]:
    """The variables of a frame."""
    return tuple(local(name, value) for name, value in values.items())


def under(number: int, test: str, values: dict[str, int]) -> Process:
    """A rank that alone calls a barrier in the loop under a condition."""
    return rank(number, *c10d("barrier"), train(14, conditions=(test,), locals=found(values)))


def beyond(number: int, values: dict[str, int]) -> Process:
    """A rank at an earlier line of a later round."""
    return rank(number, *c10d("all_reduce"), train(12, locals=found(values)))


@pytest.mark.parametrize(
    ("test", "mine", "theirs", "blamed"),
    [
        ("rank == 0", {}, {}, 0),
        ("step > 10 and rank == 0", {}, {}, 0),
        ("step % 100 == 0 and master_process", {}, {}, 0),
        ("accelerator.is_main_process", {}, {}, 0),
        ("me == 0", {"me": 0}, {"me": 1}, 0),
        ("step > 10 and me == 0", {"me": 0}, {"me": 1}, 0),
        ("not me", {"me": 0}, {"me": 1}, 0),
        ("r == 0", {"r": 0}, {}, 0),  # the other's is out of sight, but so people call it
        # These say nothing of a rank, and no record shows who is odd.
        ("phase == 0", {"phase": 0}, {"phase": 0}, None),
        ("phase == 0", {"phase": 0}, {}, None),
        ("step == 0", {"step": 0}, {"step": 1}, None),  # a loop's counter
        ("loss > 3", {}, {}, None),
        ("rank != 1", {}, {}, None),
        ("except OSError", {}, {}, None),
        ("is_main", {"is_main": 1}, {"is_main": 1}, None),  # on both
        ("rank == 0", {"rank": 0}, {"rank": 0}, None),  # of a group, or of a node
    ],
)
def test_who_made_the_call_alone(test: str, mine: dict[str, int], theirs: dict[str, int], blamed: int | None) -> None:
    (job,) = diagnose(snapshot(under(0, test, {"step": 20, **mine}), beyond(1, {"step": 21, **theirs}))).jobs
    tie = ("HD201", (0, 1))
    assert [(f.code, f.culprits) for f in job.findings] == [tie if blamed is None else ("HD203", (blamed,))]


KNOWN = "its call runs only under the condition `{}`: `{}` is {} on rank 0, {} on rank 1"
INFERRED = "its call runs only under the condition `{}`, whose value on rank 1 could not be read"


@pytest.mark.parametrize(
    ("tests", "mine", "theirs", "named"),
    [
        (("distributed",), {"distributed": True}, {"distributed": True}, None),
        (
            ("distributed",),
            {"distributed": True},
            {"distributed": False},
            KNOWN.format("distributed", "distributed", True, False),
        ),
        (("mode",), {"mode": 2}, {"mode": 1}, None),
        (("args.distributed",), {"args": "<Namespace at 0x7f01>"}, {"args": "<Namespace at 0x7f02>"}, None),
        (("dist.is_available() and dist.is_initialized()",), {}, {}, None),
        (("world_size > 1",), {}, {}, None),
        (("rank == 0", "args.distributed"), {"rank": 0}, {"rank": 1}, KNOWN.format("rank == 0", "rank", 0, 1)),
        (("mode == 'a'",), {"mode": "'a'"}, {"mode": "'a'"}, None),
        (("mode == 'a'",), {"mode": "'<str>'"}, {"mode": "'<str>'"}, INFERRED.format("mode == 'a'")),
        (("loss > 3",), {"loss": "float32[]"}, {"loss": "float32[]"}, INFERRED.format("loss > 3")),
        (("args.verbose",), {}, {}, INFERRED.format("args.verbose")),
        (("not args.distributed",), {}, {}, INFERRED.format("not args.distributed")),
    ],
)
def test_a_condition_that_holds_on_all_ranks_is_no_reason(
    tests: tuple[str, ...], mine: dict[str, object], theirs: dict[str, object], named: str | None
) -> None:
    """One rank of three made another call than the others."""
    here = rank(0, *c10d("barrier"), train(14, conditions=tests, locals=found(mine)), world=3)
    there = (rank(number, *c10d("all_reduce"), train(12, locals=found(theirs)), world=3) for number in (1, 2))
    finding = diagnose(snapshot(here, *there)).jobs[0].findings[0]
    assert finding.culprits == (0,)
    assert [line.text for line in finding.evidence if line.probe == "source"] == ([named] if named is not None else [])
    assert (finding.code, "inside `if" in finding.summary) == (
        ("HD203", True) if named is not None else ("HD201", False)
    )
