"""Expressions with possessive repetitions, in a Python that lacks them."""

import re
import sys
import time
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.redact.source import _LITERAL, _NUMBER
from hangdoc.redact.values import _BARE, _KEYWORD, _TOKEN
from hangdoc.regex import _POSSESSIVE, regex, without_possessive

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


@pytest.mark.skipif(sys.version_info < _POSSESSIVE, reason="the expression is for newer Pythons")
def test_a_possessive_repetition_gives_nothing_back() -> None:
    for text in (r"a*+a", r"(?:a|ab)++c", r"\w++\d"):
        for word in ("aaa", "abc", "abab", "w1"):
            assert bool(re.match(text, word)) == bool(re.match(without_possessive(text), word))


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 11, 2), (3, 11, 5)])
def test_only_pythons_that_match_rightly_get_possessive_repetitions(
    version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdoc.regex.sys.version_info", version)
    assert (regex(r"a*b").pattern, regex(r"(?:a)*").pattern) == (r"a*b", r"(?:a)*")
    monkeypatch.setattr("hangdoc.regex.re.compile", lambda text, flags: SimpleNamespace(pattern=text))
    assert ("possessive_1" in regex(r"a*+b").pattern) == (version < (3, 11, 5))
