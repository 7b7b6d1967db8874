"""Which side of a difference is the odd one, on simulated programs."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangdoc.reasoning.ledger.compare import Differs, Odd, SizesDiffer, compare, find_odd
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Site
from tests.unit.test_ledger_history import Line, Program, hung, recorded

GRADIENT, LOSS, BARRIER = (
    Call(op, (f"float32[{size}]",), (Site("train.py", line, "step"),))
    for op, size, line in (("all_reduce", 64, 12), ("all_gather", 1, 15), ("barrier", 0, 30))
)
STEP = [GRADIENT, GRADIENT, LOSS]


def odd_of(group: GroupCalls) -> Odd | None:
    answer = compare(group)
    assert isinstance(answer, Differs | SizesDiffer), answer
    return find_odd(group, answer)


def test_of_two_ranks_the_past_tells_who_left_the_loop() -> None:
    odd = odd_of(recorded([[*STEP * 5, GRADIENT], [*STEP * 5, BARRIER]]))
    assert odd is not None
    assert (odd.ranks, odd.call, odd.others_call, odd.skipped, odd.by_past) == ((1,), BARRIER, GRADIENT, False, True)


def test_of_two_ranks_the_past_tells_who_skipped_a_call() -> None:
    odd = odd_of(recorded([[*STEP * 5, *STEP[:2]], [*STEP * 5, GRADIENT, LOSS]]))
    assert odd is not None
    assert (odd.ranks, odd.skipped) == ((1,), True)


def test_what_comes_seldom_is_known_by_what_was_before_it() -> None:
    """Every tenth step ends with a barrier. Rank 0 left it out."""
    epoch = [*STEP * 10, BARRIER]
    odd = odd_of(recorded([[*epoch * 2, *STEP * 10, GRADIENT], [*epoch * 2, *STEP * 10, BARRIER]]))
    assert odd is not None
    assert odd.ranks == (0,)


def test_what_followed_nearly_always_is_expected_and_not_what_followed_last() -> None:
    """A gather under a condition on the data. All ranks left it out in one step; now only rank 0 does."""
    step = [GRADIENT, LOSS]
    past = [*step * 14, GRADIENT, *step * 3, GRADIENT]
    odd = odd_of(recorded([[*past, GRADIENT], [*past, LOSS]]))
    assert odd is not None
    assert (odd.ranks, odd.skipped) == ((0,), True)
    as_often = [*step * 3, GRADIENT, *step * 2, GRADIENT]
    assert odd_of(recorded([[*as_often, GRADIENT], [*as_often, LOSS]])) is None


def test_a_call_that_comes_after_a_count_is_due_by_that_count() -> None:
    """A barrier after each ten gradients, in a record too short to show that by what followed. Rank 1 skipped one of them before,
    and the next one met it."""
    epoch = [*[GRADIENT] * 10, BARRIER]
    odd = odd_of(recorded([[LOSS, *epoch * 2, *[GRADIENT] * 10], [LOSS, *epoch * 2, *[GRADIENT] * 9, BARRIER]]))
    assert odd is not None
    assert (odd.ranks, odd.call, odd.skipped) == ((1,), BARRIER, True)


def test_what_comes_after_varying_counts_is_no_departure() -> None:
    """A barrier once a minute: after 9, 12, 10 and 11 steps, and now rank 1 has come to it after 10. Rank 0 may have left it
    out."""
    past = [call for steps in (9, 12, 10, 11) for call in (*[GRADIENT] * steps, BARRIER)]
    past += [GRADIENT] * 10
    assert odd_of(recorded([[*past, GRADIENT], [*past, BARRIER]])) is None


def test_calls_that_met_by_chance_since_the_sides_parted_tell_nothing() -> None:
    """Rank 0 validates alone. Its calls meet those of rank 1's next step, which are as large, until one differs."""
    validate = GRADIENT._replace(sites=(Site("train.py", 50, "validate"),))
    odd = odd_of(recorded([[*STEP * 5, validate, validate, validate], [*STEP * 5, *STEP]]))
    assert odd is not None
    assert (odd.number, odd.ranks, odd.call, odd.others_call, odd.skipped) == (16, (0,), validate, GRADIENT, False)


def test_one_call_at_two_lines_is_no_departure() -> None:
    """Rank 1 makes the first call of each step at a line of its own, and leaves out the last one."""
    theirs = GRADIENT._replace(sites=(Site("train.py", 13, "step"),))
    odd = odd_of(recorded([[*[GRADIENT, LOSS] * 5, GRADIENT, LOSS], [*[theirs, LOSS] * 5, theirs, theirs]]))
    assert odd is not None
    assert (odd.number, odd.ranks) == (12, (1,))


def test_the_fewer_ranks_are_odd() -> None:
    odd = odd_of(recorded([[GRADIENT], [BARRIER], [GRADIENT]]))
    assert odd is not None
    assert (odd.ranks, odd.by_past) == ((1,), False)


def test_nothing_tells_in_a_first_round() -> None:
    assert odd_of(recorded([[GRADIENT], [BARRIER]])) is None
    assert odd_of(recorded([[GRADIENT], [BARRIER], [GRADIENT], [BARRIER]])) is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_who_skips_a_call_of_a_known_step_is_odd(data: st.DataObject) -> None:
    """Two ranks, and a step of calls of different sizes, so that the first one that is skipped stops the run."""
    sizes = data.draw(st.lists(st.integers(1, 50), min_size=2, max_size=6, unique=True))
    body = tuple(Line("all_reduce", size, (10 + at,)) for at, size in enumerate(sizes))
    skipped = data.draw(st.integers(2, 8)), data.draw(st.integers(0, len(body) - 1))
    group = hung(Program(2, body, 10, skips={1: {skipped}}), ring=data.draw(st.sampled_from([len(body) + 4, 2000])))
    odd = odd_of(group)
    assert odd is not None
    assert (odd.ranks, odd.skipped) == ((1,), True)


def test_what_depends_on_the_data_has_no_expected_follower() -> None:
    """All calls before together were mostly made once, and then anything follows them always."""
    decided = 0
    for seed in range(30):
        coin = random.Random(seed)  # noqa: S311
        past = [call for _ in range(100) for call in (GRADIENT, GRADIENT, LOSS if coin.random() < 0.5 else BARRIER)]
        past += [GRADIENT, GRADIENT]
        decided += odd_of(recorded([[*past, LOSS], [*past, BARRIER]])) is not None
    assert decided <= 3


def test_the_place_that_matches_all_must_agree() -> None:
    """One evaluation was made, after 20 steps; the later half of these calls was made in each step since."""
    once = [*STEP * 20, BARRIER, *STEP * 20]
    assert odd_of(recorded([[*once, GRADIENT], [*once, BARRIER]])) is None
    odd = odd_of(recorded([[*once, BARRIER, *STEP * 20, GRADIENT], [*once, BARRIER, *STEP * 20, BARRIER]]))
    assert odd is not None and odd.ranks == (0,)
