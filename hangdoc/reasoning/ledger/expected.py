"""Which side of a difference did what was not expected.

Of sides of different size, the smaller one. Of two that are equal, the one whose call is not what followed the same calls
before: a loop that has run many times makes the next call predictable. In a first round nothing does.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from hangdoc.reasoning.ledger.compare import Differs, SizesDiffer, blamed
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, RankCalls, Signature, signature

_LEAST_CONTEXT = 2
"""So many calls before must be the same ones."""
_MOST_CONTEXT = 400
Known = TypeVar("Known")


class Odd(NamedTuple):
    """The side that did what was not expected."""

    number: int
    """Of the calls in their group; 0 for calls of different groups."""

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
        candidates = {signature(side.call) for side in sides if side.call}
        expected = _what_followed(_past(group, comparison.number), candidates)
        ranks = tuple(sorted(n for side in sides if side.call and signature(side.call) != expected for n in side.ranks))
        by_past = True
        if expected is None or len({signature(side.call) for side in sides if side.call}) < 2:
            return None
    mine = next(side.call for side in sides if side.call and set(side.ranks) <= set(ranks))
    theirs = next(side.call for side in sides if side.call and not set(side.ranks) & set(ranks))
    made_before = (call for calls in group.ranks.values() for n, call in _numbered(calls) if n < comparison.number)
    return Odd(
        comparison.number,
        ranks,
        mine,
        theirs,
        skipped=signature(mine) in set(map(signature, made_before)),
        by_past=by_past,
    )


def find_odd_across(ledger: Ledger, ranks: Iterable[int]) -> Odd | None:
    """The same for ranks that wait in calls of different groups: whose call is not what followed the calls before, of all groups
    together. None if a rank's wait is not recorded, or nothing tells."""
    waiting: dict[int, tuple[str | None, Call]] = {}
    past: list[_Made] = []
    for rank in ranks:
        pending = [
            (group.name, calls.pending[0].call)
            for group, calls in ledger.of_rank(rank)
            if calls.pending and calls.pending[0].source == "recorder"
        ]
        if len(pending) != 1:
            return None
        waiting[rank] = pending[0]
        past = max(past, _before(ledger, rank), key=len)
    candidates = {(name, signature(call)) for name, call in waiting.values()}
    expected = _what_followed([made for _, made in past], candidates)
    odd = tuple(sorted(n for n, (name, call) in waiting.items() if (name, signature(call)) != expected))
    if expected is None or len(candidates) != 2 or not odd:
        return None
    mine, theirs = waiting[odd[0]], next(call for rank, (_, call) in waiting.items() if rank not in odd)
    made_before = {made for _, made in past}
    return Odd(0, odd, mine[1], theirs, skipped=(mine[0], signature(mine[1])) in made_before, by_past=True)


_Made = tuple[int, tuple[str | None, Signature]]
"""When a call was made, and the group and the call."""


def _before(ledger: Ledger, rank: int) -> list[_Made]:
    """The calls of a rank in all of its groups, without those that it waits in, in the order in which it made them."""
    made = []
    for group, calls in ledger.of_rank(rank):
        waits = {one.number for one in calls.pending}
        for number, call, at in zip(calls.numbers, calls.calls, calls.made_us, strict=True):
            if number not in waits:
                made.append((at, (group.name, signature(call))))
    return sorted(made, key=lambda one: one[0])


def _numbered(calls: RankCalls) -> Iterable[tuple[int, Call]]:
    return zip(calls.numbers, calls.calls, strict=True)


def _past(group: GroupCalls, number: int) -> list[Signature]:
    """The calls before a number, of the rank with the longest record."""
    longest = max(group.ranks.values(), key=lambda calls: len(calls.numbers))
    return [signature(call) for n, call in _numbered(longest) if n < number]


def _what_followed(past: Sequence[Known], candidates: set[Known]) -> Known | None:
    """Of some calls, the one that followed the last ones of the past when they were made earlier: where the most of them are the
    same. None if nothing like it was recorded."""
    best, followed = _LEAST_CONTEXT - 1, None
    for at in range(len(past) - 1, 0, -1):
        if past[at] in candidates:
            length = _common_end(past, at)
            if length > best:
                best, followed = length, past[at]
    return followed


def _common_end(past: Sequence[Known], end: int) -> int:
    """How many calls before the position `end` are the same as those at the end of the past."""
    length = 0
    while length < min(end, _MOST_CONTEXT) and past[end - 1 - length] == past[-1 - length]:
        length += 1
    return length
