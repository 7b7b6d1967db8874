"""Whether a condition around a rank's call may be why another rank does not make it: by its values on that rank."""

import pytest
from msgspec.structs import replace

from hangdoc.parse import rounded
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.ranks.conditions import find_condition, find_own_condition
from hangdoc.reasoning.ranks.truths import find_truth, is_ruled_out
from hangdoc.snapshot import Exit, Loop
from tests.unit.builders import c10d, frame, local, rank, snapshot

NAMES = {
    "debug": False, "step": 60, "r": 1, "name": "'dev'", "loss": "float32[]", "cut": '{"variant": "a", "hang',
    "cfg": '{"variant": "a", "hang_at": 40, "key": "<redacted>", "lr": 0.12345678}', "lr": "0.12345678", "odd": "-'a'",
}  # fmt: skip


@pytest.mark.parametrize(
    ("test", "truth"),
    [
        ("debug", False),
        ("not debug", True),
        ("debug and r == 1", False),
        ("not (debug and seen[r])", True),  # what is not known does not matter
        ("step >= 60 and name != 'prod'", True),
        ("debug or loss > 2", None),
        ("loss > 2 and r == 0", False),
        ("r != step - 1", True),
        ("step % 20 == 0", True),
        ("step // (r - 1) > 0", None),  # a division by zero
        ("step - loss > 0", None),
        (" - ".join(["r"] * 9) + " < 0", True),
        (" - ".join(["r"] * 300) + " < 0", None),
        ("is_main()", None),
        ("name > 3", None),
        ("cfg['variant'] == 'b' and loss > 2", False),
        ("step >= cfg['hang_at']", True),
        ("lr == 0.12345678 and lr == cfg['lr']", True),
        ("odd == 'a'", None),
        ("debug or r == 10" + " " * 184, None),  # it may be cut
        ("cfg['none'] == 1 or cfg['key'] == 'x' or cut['variant'] == 'b' or seen['x']", None),
    ],
)
def test_the_truth_of_a_condition_on_a_rank(test: str, truth: bool | None) -> None:
    variables = tuple(local(name, value) for name, value in NAMES.items())
    assert find_truth(test, variables) is truth


@pytest.mark.parametrize(("name", "argument", "settings", "ruled_out"), [
    ("cfg", True, ("cfg",), True),
    ("cfg", False, ("cfg",), False),  # it may have been another one at the test
    ("cfg", True, (), False),
    ("other", True, ("cfg", "other"), False),
])  # fmt: skip
def test_a_statement_that_the_arguments_rule_out(
    name: str, argument: bool, settings: tuple[str, ...], ruled_out: bool
) -> None:
    exit_ = Exit(line=5, statement="break", conditions=("cfg['variant'] == 'b' and loss > 2",))
    loop = Loop(line=3, end_line=9, header="for x in loader", exits=(exit_,), settings=settings)
    variable = replace(local(name, '{"variant": "a"}'), argument=argument)
    assert is_ruled_out(exit_, loop, frame("train", 12, locals=(variable,))) is ruled_out


def test_a_condition_that_holds_on_the_other_rank_too_is_not_why_it_makes_no_call() -> None:
    """Rank 1 has returned two lines above. `debug` is False on both."""
    tests = ("not (debug and r == 1)",)
    here = frame("step", 9, locals=(local("debug", False), local("r", 0)), conditions=tests)
    there = frame("step", 20, locals=(local("debug", False), local("r", 1)))
    _, (run,) = examine(snapshot(rank(0, *c10d("broadcast"), here), rank(1, *c10d("barrier"), there)))
    assert find_own_condition(run.ranks[0], [run.ranks[1]]) is None


def test_the_condition_about_the_rank_is_the_reason_and_not_one_that_may_hold_on_all() -> None:
    """`if rank == 0:` around `if args.save:`; the arguments are not read."""
    here = frame("save", 9, locals=(local("rank", 0),), conditions=("rank == 0", "args.save"))
    there = frame("step", 20, locals=(local("rank", 1),))
    _, (run,) = examine(snapshot(rank(0, *c10d("barrier"), here), rank(1, *c10d("all_reduce"), there)))
    assert find_own_condition(run.ranks[0], [run.ranks[1]]) == "rank == 0"
    condition = find_condition(run.ranks[0], run.ranks[1])
    assert condition is not None and (condition.test, condition.decides) == ("rank == 0", "rank")


def test_values_that_differ_go_before_a_name_that_is_like_a_rank() -> None:
    tests = ("args.ranking_loss", "loss > 10")
    here = frame("step", 9, locals=(local("loss", 12),), conditions=tests)
    there = frame("step", 20, locals=(local("loss", 3),))
    _, (run,) = examine(snapshot(rank(0, *c10d("all_reduce"), here), rank(1, *c10d("barrier"), there)))
    condition = find_condition(run.ranks[0], run.ranks[1])
    assert condition is not None and condition.test == "loss > 10"


def test_a_value_that_was_assigned_after_the_test_is_not_shown_as_the_tested_one() -> None:
    """`if val < self.best: self.best = val; barrier()`."""
    now = (local("val", 2), local("self.best", 2))
    here = frame("fit", 9, locals=now, conditions=("val < self.best",), reassigned=("self.best",))
    there = frame("fit", 4, locals=(local("val", 4), local("self.best", 3)))
    _, (run,) = examine(snapshot(rank(0, *c10d("barrier"), here), rank(1, *c10d("all_reduce"), there)))
    condition = find_condition(run.ranks[0], run.ranks[1])
    assert condition is not None and (condition.differing, condition.decided_by_these) == (("val",), False)
    assert condition.text.endswith(": `val` is 2 on rank 0, 4 on rank 1; `self.best` was assigned after the test")


def test_an_equal_value_that_was_assigned_after_the_test_is_no_excuse() -> None:
    """`if not self.ready: self.ready = True; barrier()`: now it is True on both."""
    values = (local("self.ready", True),)
    here = frame("fit", 9, locals=values, conditions=("not self.ready",), reassigned=("self.ready",))
    there = frame("fit", 12, locals=values)
    _, (run,) = examine(snapshot(rank(0, *c10d("barrier"), here), rank(1, *c10d("all_reduce"), there)))
    assert find_own_condition(run.ranks[0], [run.ranks[1]]) == "not self.ready"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1795780001.12", "1.79578e+09"),
        ("1234567", "1234567"),
        ("-0.25", "-0.25"),
        ("1e400", "inf"),
        ("'1.5'", "'1.5'"),
    ],
)
def test_a_number_is_compared_to_six_digits(text: str, shown: str) -> None:
    assert rounded(text) == shown


def test_a_condition_that_leaves_out_a_call_is_shown_as_in_the_source_with_its_statement() -> None:
    """`if not deep and last: break` above the call of rank 0; rank 1 is elsewhere. Not one of a loop that has ended, nor in an
    `if` that need not be true."""
    skip = Exit(line=7, statement="break", conditions=("not deep and last",))
    blocks = Loop(line=5, end_line=10, header="for block in blocks", exits=(skip,))
    within = replace(blocks, exits=(replace(skip, conditions=("verbose", "not deep and last")),))
    ended = replace(blocks, end_line=8)
    unknown = frame("forward", 9, conditions=("not (not deep and last)",))
    inner = Loop(line=6, end_line=8, header="for part in block")
    here, *others = (replace(unknown, loops=loops) for loops in ((blocks,), (within,), (ended,), (blocks, inner)))
    for mine, statement in ((here, " (`break` at me/train.py:7)"), (unknown, ""), *((each, "") for each in others)):
        _, (run,) = examine(snapshot(rank(0, *c10d("all_reduce"), mine), rank(1, *c10d("barrier"), frame("main", 20))))
        condition = find_condition(run.ranks[0], run.ranks[1])
        assert condition is not None and not condition.runs
        assert condition.text == f"its call does not run under the condition `not deep and last`{statement}" + (
            ", whose value on rank 1 could not be read"
        )
