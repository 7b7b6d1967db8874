"""What a sequence of calls lets expect next: by how often each call comes after another one, and by what followed the same calls.
Knows nothing of ranks and groups."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise, permutations
from typing import TypeVar

_LEAST_CONTEXT = 2
"""So many calls before must be the same ones."""
_LEAST_TIMES = 2
"""What followed once may have been an exception."""
_LEAST_SHARE = 0.9
"""A call under a condition follows the same calls now and then. A loop makes the usual one nearly always."""
Item = TypeVar("Item", bound=Hashable)


def what_is_expected(past: Sequence[Item], candidates: set[Item]) -> Item | None:
    """Of the calls in which the sides wait, the one that is due by its count, or else the one that nearly always followed. None
    if another one came after varying numbers of calls and now could: what depends on the data or the time is no departure."""
    if (due := _what_is_due(past, candidates)) is not None:
        return due
    followed = what_followed(past, candidates)
    if any(_may_come_now(past, item) for item in candidates if item != followed):
        return None
    return followed


def _what_is_due(past: Sequence[Item], candidates: set[Item]) -> Item | None:
    """Of two calls, the one that is due where one of them has always come after the same number of the other: a barrier after
    each ten steps. What came before the first time may be a setup. None if neither has a period, or if they disagree."""
    if len(candidates) != 2:
        return None
    due = set()
    for item, other in permutations(candidates):
        counts, now = _count_between(past, item, other)
        counts = counts if len(set(counts)) == 1 else counts[1:]
        if len(counts) >= _LEAST_TIMES and len(set(counts)) == 1 and counts[0] > 0:
            due.add(item if now == counts[0] else other)
    return due.pop() if len(due) == 1 else None


def _count_between(past: Iterable[Item], item: Item, other: Item) -> tuple[list[int], int]:
    """How often a call was made before each time of another one, since the time before; and how often since the last time."""
    counts, now = [], 0
    for made in past:
        if made == item:
            counts.append(now)
            now = 0
        elif made == other:
            now += 1
    return counts, now


def _may_come_now(past: Sequence[Item], item: Item) -> bool:
    """Whether a call came now and then at this distance from its last time, when it had not come before."""
    made = [at for at, other in enumerate(past) if other == item]
    now = len(past) - made[-1] if made else 0
    as_late = [later - earlier for earlier, later in pairwise(made) if later - earlier >= now]
    return 0 < as_late.count(now) < len(as_late) and as_late.count(now) > (1 - _LEAST_SHARE) * len(as_late)


def what_followed(past: Sequence[Item], candidates: set[Item]) -> Item | None:
    """Of some calls, the one that nearly always followed the last ones of the past, or the later half of those that were made
    before. None if nothing like it was recorded, or if there now one and now another followed. All that were made before were
    mostly made once together, and anything follows them always."""
    lengths = _common_ends(past)
    longest = max((length for length, item in zip(lengths, past, strict=True) if item in candidates), default=0)
    if longest < _LEAST_CONTEXT:
        return None
    least = max(_LEAST_CONTEXT, longest // 2)
    followers = Counter(
        item for length, item in zip(lengths, past, strict=True) if length >= least and item in candidates
    )
    followed, times = followers.most_common(1)[0]
    at_longest = Counter(
        item for length, item in zip(lengths, past, strict=True) if length == longest and item in candidates
    )
    agrees = at_longest.most_common(1)[0][0] == followed
    return followed if agrees and times >= _LEAST_SHARE * followers.total() else None


def what_always_followed(past: Sequence[Item]) -> Item | None:
    """What followed the last calls of the past each time that they, or the later half of them, were made before. None if that was
    less than twice, or if not always the same followed."""
    lengths = _common_ends(past)
    least = max(_LEAST_CONTEXT, max(lengths, default=0) // 2)
    followers = [past[at] for at, length in enumerate(lengths) if length >= least]
    return followers[0] if len(followers) >= _LEAST_TIMES and len(set(followers)) == 1 else None


def _common_ends(past: Sequence[Item]) -> list[int]:
    """For each position, how many calls before it are the same as those at the end of the past: the Z function of the reversed
    past, in linear time."""
    back, lengths = past[::-1], [0] * len(past)
    begin = end = 0
    for at in range(1, len(back)):
        length = min(end - at, lengths[at - begin]) if at < end else 0
        while at + length < len(back) and back[length] == back[at + length]:
            length += 1
        if at + length > end:
            begin, end = at, at + length
        lengths[at] = length
    return [*lengths[:1], *reversed(lengths[1:])]
