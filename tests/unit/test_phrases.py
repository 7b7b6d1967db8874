"""Texts of limited length, and values with their ranks."""

import pytest

from hangdoc.phrases import compared_calls, least_minutes, shorten_values, timeout, values_by_rank

_FOLDER = "/tmp/torchelastic_8x2k1n3q/none_5v7y0wqe/attempt_0/{}/error.json"


def test_what_differs_is_shown_of_long_values() -> None:
    texts = shorten_values([(_FOLDER.format(n), (n,)) for n in range(2)])
    assert [text for text, _ in texts] == [f"…{_FOLDER.format(n)[-59:]}" for n in range(2)]
    assert all(text.endswith(f"/{n}/error.json") for n, (text, _) in enumerate(texts))


def test_a_difference_far_from_the_end_is_shown_with_an_ellipsis_on_both_sides() -> None:
    texts = [text for text, _ in shorten_values([("a" * 99 + x + "b" * 99, (0,)) for x in "xy"], 60)]
    assert [len(text) for text in texts] == [60, 60]
    assert texts[0] == "…" + "a" * 20 + "x" + "b" * 37 + "…"


def test_values_are_given_with_their_ranks() -> None:
    assert values_by_rank([("0", (0, 1)), (None, (2,))]) == "0 on ranks 0-1; not set on rank 2"
    assert values_by_rank([("x" * 61, (0,))]) == "x" * 59 + "… on rank 0"


def test_names_of_calls_are_those_of_a_process() -> None:
    assert compared_calls(9, 9, ["barrier"]) == "the last 9 calls"
    assert (
        compared_calls(1, 9, ["barrier"])
        == "the call (barrier) of the last 9 in which the ranks came the furthest apart"
    )
    assert (
        compared_calls(3, 9, ["b\x1b]0;owned\x07", "a"])
        == "the 3 calls (a, b·]0;owned·) of the last 9 in which the ranks came the furthest apart"
    )
    assert (
        compared_calls(3, 9, ["x" * 1000, *"abcd"])
        == "the 3 calls (a, b, c and 2 more) of the last 9 in which the ranks came the furthest apart"
    )


@pytest.mark.parametrize(
    ("seconds", "least", "as_timeout"),
    [
        (151.5, "2 min", "2 min 32 s"),
        (1776.2, "29 min", "29 min 36 s"),
        (119.9, "1 min 59 s", "2 min"),
        (8.9, "8.0 s", "8.9 s"),
        (1800.0, "30 min", "30 min"),
        (160.0, "2 min", "2 min 40 s"),
        (7200.0, "2 h 0 min", "2 h"),
        (258840.0, "2 d 23 h", "3 d"),
    ],
)
def test_a_time_that_surely_remains_is_rounded_down_and_a_timeout_is_exact(
    seconds: float, least: str, as_timeout: str
) -> None:
    assert (least_minutes(seconds), timeout(seconds)) == (least, as_timeout)
