"""The bounds of an answer: its size, the length of its lists and texts, and no control character out of a process."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from hangdoc.agents.answers import Answer
from hangdoc.render.words import clean

MAX_BYTES = 24_000
"""Of one answer as JSON; some 7,000 tokens."""
_MOST = (40, 24, 16, 10, 6, 4, 2, 1)
"""How many items of each list are shown, the first number that fits."""
_ARGUMENTS = {"--pid": "`pids`", "--hosts": "`hosts`", "--master": "`master`", "--params": "`parameters`"}
LINE, TEXT = 200, 600
"""Characters of a source line or a name, and of a sentence."""

T = TypeVar("T", bound=Answer)
I = TypeVar("I")  # noqa: E741


def fitted(build: Callable[[int], T]) -> T:
    """The fullest answer that is no larger than MAX_BYTES; `build` takes how many items of each list to show."""
    for most in _MOST:
        found = build(most)
        if len(msgspec.json.encode(found)) <= MAX_BYTES:
            break
    return found


def first(items: Sequence[I], most: int) -> tuple[tuple[I, ...], int]:
    """The first items, and how many are left out."""
    return tuple(items[:most]), max(0, len(items) - most)


def clip(text: str | None, length: int = TEXT) -> str:
    """Text from a process: no control characters, and no longer than this."""
    shown = clean(text or "")
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def spoken(sentence: str) -> str:
    """A sentence of the command line in the words of the tools: its options are their arguments."""
    for option, argument in _ARGUMENTS.items():
        sentence = sentence.replace(option, argument)
    return sentence


def clipped(texts: Iterable[str], length: int = TEXT) -> tuple[str, ...]:
    """Each of them."""
    return tuple(clip(text, length) for text in texts)
