"""The limits of an answer: its size and the length of its lists and texts. Removes control characters of processes."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from hangdoc.agents.answers import Answer
from hangdoc.phrases import shorten
from hangdoc.render.words import clean

MAX_BYTES = 24_000
"""Bytes of an answer as JSON, about 7,000 tokens."""
_MOST = (40, 24, 16, 10, 6, 4, 2, 1)
"""Items of each list. The first number that fits is used."""
_ARGUMENTS = {"--pid": "`pids`", "--hosts": "`hosts`", "--master": "`master`", "--params": "`parameters`"}
LINE, TEXT = 200, 600
"""Characters of a source line or a name, and of a sentence."""

T = TypeVar("T", bound=Answer)
I = TypeVar("I")  # noqa: E741


def fitted(build: Callable[[int], T]) -> T:
    """The longest answer within MAX_BYTES. `build` takes the maximum number of items of each list."""
    for most in _MOST:
        answer = build(most)
        if len(msgspec.json.encode(answer)) <= MAX_BYTES:
            break
    return answer


def first(items: Sequence[I], most: int) -> tuple[tuple[I, ...], int]:
    """The first items, and how many are left out."""
    return tuple(items[:most]), max(0, len(items) - most)


def clip(text: str | None, length: int = TEXT) -> str:
    """Text from a process without control characters, cut to this length."""
    return shorten(clean(text or ""), length)


def in_tool_terms(sentence: str) -> str:
    """An error message of the command line with the arguments of the tools instead of its options."""
    for option, argument in _ARGUMENTS.items():
        sentence = sentence.replace(option, argument)
    return sentence


def clipped(texts: Iterable[str], length: int = TEXT) -> tuple[str, ...]:
    """The texts, each cut to this length."""
    return tuple(clip(text, length) for text in texts)
