"""Expressions with possessive repetitions, in a Python that lacks them."""

import re
import sys
import time
from itertools import zip_longest
from typing import Any

import pytest

from hangdoc.redact.source import _LITERAL, _NUMBER
from hangdoc.redact.values import _BARE, _KEYWORD, _TOKEN
from hangdoc.regex import without_possessive

TEXTS = (
    "",
    "aaa",
    "aab",
    'name = "text \\" 12" # a comment',
    "'''long 'one' \\''' end''' f(timeout=1234567)",
    "[1, {'k': 'v]'}, <str>, key=0x1f]",
    "\\",
)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (r"a*+b", r"(?=(?P<possessive_1>a*))(?P=possessive_1)b"),
        (r"[a+*\]]++|\++", r"(?=(?P<possessive_1>[a+*\]]+))(?P=possessive_1)|\++"),
        (r"(?:a|(b)){2,3}+", r"(?=(?P<possessive_1>(?:a|(b)){2,3}))(?P=possessive_1)"),
        (r"a+?b{1}c?(d)*(?P=x){}", r"a+?b{1}c?(d)*(?P=x){}"),
    ],
)
def test_possessive_repetitions_become_look_aheads(text: str, same: str) -> None:
    assert without_possessive(text) == same


@pytest.mark.parametrize("pattern", [_LITERAL, _NUMBER, _TOKEN, _BARE, _KEYWORD])
def test_the_same_matches(pattern: Any) -> None:
    old = re.compile(without_possessive(pattern._text), pattern._flags)
    for text in TEXTS:
        for ours, other in zip_longest(pattern.finditer(text), old.finditer(text)):
            assert (other.span(), ours.lastgroup or other.lastgroup) == (ours.span(), other.lastgroup)
            assert other.groupdict() | ours.groupdict() == other.groupdict()


def test_no_time_is_lost_on_a_text_that_never_ends() -> None:
    long = re.compile(without_possessive(r"(?:[^\"\\]++|\\.)*+\""))
    began = time.perf_counter()
    assert long.match("a" * 100_000) is None
    assert time.perf_counter() - began < 1.0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the expression is for newer Pythons")
def test_a_possessive_repetition_gives_nothing_back() -> None:
    for text in (r"a*+a", r"(?:a|ab)++c", r"\w++\d"):
        for word in ("aaa", "abc", "abab", "w1"):
            assert bool(re.match(text, word)) == bool(re.match(without_possessive(text), word))
