"""Which conditions of a script single ranks out, by name and by value."""

import pytest

from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Process
from tests.unit.builders import c10d, local, rank, snapshot, train


def under(number: int, test: str, values: dict[str, int]) -> Process:
    """A rank that alone calls a barrier in the loop under a condition."""
    found = tuple(local(name, value) for name, value in values.items())
    return rank(number, *c10d("barrier"), train(14, conditions=(test,), locals=found))


def beyond(number: int, values: dict[str, int]) -> Process:
    """A rank at an earlier line of a later round."""
    found = tuple(local(name, value) for name, value in values.items())
    return rank(number, *c10d("all_reduce"), train(12, locals=found))


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
    ],
)
def test_who_made_the_call_alone(test: str, mine: dict[str, int], theirs: dict[str, int], blamed: int | None) -> None:
    (job,) = diagnose(snapshot(under(0, test, {"step": 20, **mine}), beyond(1, {"step": 21, **theirs}))).jobs
    tie = ("HD201", (0, 1))
    assert [(f.code, f.culprits) for f in job.findings] == [tie if blamed is None else ("HD203", (blamed,))]
