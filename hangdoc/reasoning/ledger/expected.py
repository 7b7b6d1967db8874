"""Which side of a difference did what was not expected.

Of sides of different size, the smaller one. Of two that are equal, the one whose call is not what followed the same calls
before: a loop that has run many times makes the next call predictable. In a first round nothing does.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hangdoc.reasoning.ledger.compare import Differs, SizesDiffer, blamed
from hangdoc.reasoning.model.ledger import Call, GroupCalls, RankCalls, Signature, signature

_LEAST_CONTEXT = 2
"""So many calls before must be the same ones."""
_MOST_CONTEXT = 400


class Odd(NamedTuple):
    """The side that did what was not expected."""

    ranks: tuple[int, ...]
    call: Call
    """What they called."""
    others_call: Call
    skipped: bool
    """Whether they made that call before, at another number: then they skipped the others' call. Else nobody ever made it."""
    by_past: bool
    """Whether the past decides, and not the number of ranks."""


def find_odd(group: GroupCalls, comparison: Differs | SizesDiffer) -> Odd | None:
    """The odd side; None if there are as many ranks on each side, and the past does not tell, or if a call is only inferred."""
    sides = [side for side in comparison.sides if side.call is not None and not side.inferred]
    if len(sides) < 2 or len(sides) < len(comparison.sides):
        return None
    ranks, by_past = blamed(comparison), False
    if not ranks:
        expected = _what_followed(group, comparison.number, {signature(side.call) for side in sides if side.call})
        ranks = tuple(sorted(n for side in sides if side.call and signature(side.call) != expected for n in side.ranks))
        by_past = True
        if expected is None or len({signature(side.call) for side in sides if side.call}) < 2:
            return None
    mine = next(side.call for side in sides if side.call and set(side.ranks) <= set(ranks))
    theirs = next(side.call for side in sides if side.call and not set(side.ranks) & set(ranks))
    made_before = (call for calls in group.ranks.values() for n, call in _numbered(calls) if n < comparison.number)
    return Odd(ranks, mine, theirs, skipped=signature(mine) in set(map(signature, made_before)), by_past=by_past)


def _numbered(calls: RankCalls) -> Iterable[tuple[int, Call]]:
    return zip(calls.numbers, calls.calls, strict=True)


def _what_followed(group: GroupCalls, number: int, candidates: set[Signature]) -> Signature | None:
    """Of some calls, the one that followed the calls before `number` when they were made earlier: where the most of them are the
    same. None if nothing like it was recorded."""
    recorded = [calls for calls in group.ranks.values() if calls.numbers and calls.numbers[0] < number]
    if not recorded:
        return None
    longest = max(recorded, key=lambda calls: len(calls.numbers))
    past = [signature(call) for n, call in _numbered(longest) if n < number]
    best, followed = _LEAST_CONTEXT - 1, None
    for at in range(len(past) - 1, 0, -1):
        if past[at] in candidates:
            length = _common_end(past, at)
            if length > best:
                best, followed = length, past[at]
    return followed


def _common_end(past: Sequence[Signature], end: int) -> int:
    """How many calls before the position `end` are the same as those at the end of the past."""
    length = 0
    while length < min(end, _MOST_CONTEXT) and past[end - 1 - length] == past[-1 - length]:
        length += 1
    return length
