"""The few ranks that went another way than most: where their stacks part from those of the others, seen from the outside in."""

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.phrases import do
from hangdoc.reasoning.model.rank import Class, merged
from hangdoc.snapshot import Frame


class Minority(NamedTuple):
    """Ranks that are elsewhere than the majority."""

    few: Class
    reason: str
    """Which way they went, and which way the others."""


def off_the_majority(classes: Iterable[Class]) -> Minority | None:
    """The ranks that left the way of the majority at the first function in which the stacks part; None if less than half of the
    ranks remain together, or if a stack is missing."""
    classes = tuple(classes)
    stacks = {id(one.first): _outside_in(one) for one in classes}
    for depth in range(min(map(len, stacks.values()), default=0)):
        at = {rank: _place(stack[depth]) for rank, stack in stacks.items()}
        parts = merged(classes, lambda rank: at[id(rank)])  # noqa: B023  it is used at once
        if len(parts) == 1:
            continue
        *others, most = parts
        few = merged(others, lambda _: None)[0]
        if len(most.ranks) <= len(few.ranks):
            return None
        names = [_name(stacks[id(one.first)], depth) for one in (few, most)]
        return Minority(few, f"{do(few.ranks, 'is', 'are')} in {names[0]}, the others in {names[1]}")
    return None


def _outside_in(one: Class) -> list[Frame]:
    return (
        [] if one.first.thread is None else [frame for frame in reversed(one.first.thread.frames) if not frame.native]
    )


def _place(frame: Frame) -> tuple[str, str, int]:
    return frame.file, frame.function, frame.line


def _name(stack: list[Frame], depth: int) -> str:
    """What is called where the stacks part."""
    return (stack[depth + 1] if depth + 1 < len(stack) else stack[depth]).function
