"""Where the calls of a group's ranks first differed, although operations and sizes matched until the end.

A rank that skips a call, or makes one more, is from then on a call ahead or behind: its n-th call is what the others call as
their n+1-th. Nothing fails as long as operation and size are the same. Lines are no evidence alone, because ranks may make one
call at different lines (`if rank == 0: a() else: b()`), in each step or in some. So a difference is reported only if

- from one number on to the end, a rank's calls are those of the others, shifted by some calls, in at least 0.9 of the cases and
  without the shift in at least 0.15 fewer, or in nearly all of them,
- before that number, the calls of both agreed, and they included those that now differ,
- or, if the record does not reach back so far, most ranks agree with each other, and lines that depend on the rank explain
  clearly less than the shift.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hangdoc.reasoning.model.ledger import Call, GroupCalls, RankCalls, Signature, signature

_SHIFTS = range(-64, 65)
"""That are tried, in calls. A rank that skips a whole step is ahead by its calls."""
_CANDIDATES = 8
_STRETCH, _MOST_STRETCHES = 32, 32
_LAST = 200
_SWITCH = 6.0
"""A change of the shift costs as much as so many calls that do not match."""
_FAR = 0.05
"""And so much more for each call of the new shift. The calls of the hang itself fit none, so that a shift that differs by whole
steps and ends before them may fit better than the true one."""
_UNKNOWN = 0.5
"""The same for a call that is not in the other record."""
_MATCHES, _BETTER = 0.9, 0.15
_TELLING = 6
"""Calls that match only if shifted. The few around one irregular call are no shift."""
_ALWAYS = 0.99
_ALL, _MANY = 0.97, 12
"""Of a rank that skipped a whole step, only the few calls that are not in every step show it, so without the shift nearly as many
calls match. Then all must match with it, and more must be telling."""
_BETTER_THAN_ROLES = 0.1
_MOST_CLASSES = 32
"""How many classes of ranks with equal calls are compared, the largest ones."""
_HEAD = 5
"""Calls that agreed before."""


class FirstDifference(NamedTuple):
    """Some ranks have been ahead of the others, or behind, since a call long before the one in which they wait."""

    number: int | None
    """The first number at which they called something else; None if that is older than the record."""
    ranks: tuple[int, ...]
    """The fewer ones."""
    others: tuple[int, ...]
    shift: int
    """By how many calls `ranks` are ahead now; below 0 if they are behind."""
    first_shift: int
    """The same right after the first difference: so many calls they skipped there, or, below 0, made in addition."""
    call: Call
    """Of `ranks`, at `number` or at the oldest number of the record."""
    others_call: Call
    calls_ago: int
    """How many calls were made since, up to the last one that all ranks have made."""
    steps_ago: int | None
    """The same in steps, if the calls repeat."""
    matched: float
    """Share of the calls since that are the others' if shifted."""
    matched_unshifted: float


class _Segment(NamedTuple):
    start: int
    """Position in the common numbers."""
    shift: int


class _History(NamedTuple):
    """A class of ranks with equal columns: their signatures by number, as small integers."""

    ranks: tuple[int, ...]
    by_number: dict[int, int]


def first_difference(group: GroupCalls) -> FirstDifference | None:
    """The earliest such difference of a group; None for none."""
    recorded = _recorded(group)
    classes = _classes(recorded)
    if len(classes) < 2:
        return None
    whole = any(calls.whole for calls in recorded.values())
    reference = _reference(classes)
    differences = [
        difference
        for history in classes
        if history is not reference and (difference := _shifted(recorded, history, reference, whole=whole)) is not None
    ]
    first = min(differences, key=lambda difference: (difference.number is None, difference.number or 0), default=None)
    if first is None:
        return None
    alike = [other for other in differences if (other.number, other.shift) == (first.number, first.shift)]
    ranks = tuple(sorted(rank for other in alike for rank in other.ranks))
    return first._replace(ranks=ranks)


def may_be_shifted(group: GroupCalls) -> bool:
    """Whether the ranks call the same lines at different numbers: since a call that is older than the record they may be shifted,
    or they may call these lines in another order on purpose. Then where a rank waits does not show what it skipped."""
    recorded = _recorded(group)
    if any(calls.whole for calls in recorded.values()):
        return False
    classes = _classes(recorded)
    if len(classes) < 2:
        return False
    reference = _reference(classes)
    return any(_calls_the_same_elsewhere(history, reference) for history in classes if history is not reference)


def _calls_the_same_elsewhere(mine: _History, theirs: _History) -> bool:
    numbers = sorted(mine.by_number.keys() & theirs.by_number.keys())[-_LAST:]
    a, b = ([history.by_number[number] for number in numbers] for history in (mine, theirs))
    if len(numbers) < _MANY or _share(x == y for x, y in zip(a, b, strict=True)) > 1 - _MATCHES:
        return False
    lines = set(a) & set(b)
    return _share(x in lines and y in lines for x, y in zip(a, b, strict=True)) >= _MATCHES


def _recorded(group: GroupCalls) -> dict[int, RankCalls]:
    return {rank: calls for rank, calls in group.ranks.items() if calls.numbers}


def _classes(recorded: dict[int, RankCalls]) -> list[_History]:
    """Ranks with equal calls in the numbers that all have, by their lowest ranks. Without any for fewer than two ranks."""
    if len(recorded) < 2:
        return []
    low = max(calls.numbers[0] for calls in recorded.values())
    high = min(calls.numbers[-1] for calls in recorded.values())
    identity: dict[Signature, int] = {}
    by_object: dict[int, int] = {}  # equal calls of a rank are one object, and a signature takes long to hash
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    columns: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
    for rank, calls in sorted(recorded.items()):
        for call in calls.calls:
            if id(call) not in by_object:
                by_object[id(call)] = identity.setdefault(signature(call), len(identity))
        by_number = {number: by_object[id(call)] for number, call in calls.by_number().items()}
        key = tuple(sorted(item for item in by_number.items() if low <= item[0] <= high))
        alike.setdefault(key, []).append(rank)
        columns.setdefault(key, by_number)
    classes = [_History(tuple(ranks), columns[key]) for key, ranks in alike.items()]
    largest = sorted(classes, key=lambda history: -len(history.ranks))[:_MOST_CLASSES]
    return sorted(largest, key=lambda history: history.ranks)


def _reference(classes: Sequence[_History]) -> _History:
    """The class whose last calls most ranks have at the same numbers."""

    def agreeing(history: _History) -> tuple[int, int]:
        last = sorted(history.by_number)[-_LAST:]
        hits = sum(
            len(other.ranks) * sum(other.by_number.get(number) == history.by_number[number] for number in last)
            for other in classes
        )
        return hits, len(history.ranks)

    return max(classes, key=agreeing)


def _shifted(
    recorded: dict[int, RankCalls], mine: _History, theirs: _History, *, whole: bool
) -> FirstDifference | None:
    numbers = sorted(mine.by_number.keys() & theirs.by_number.keys())
    segments = _segments(numbers, mine.by_number, theirs.by_number)
    if not segments or segments[-1].shift == 0:
        return None
    last_aligned = max((at for at, part in enumerate(segments) if part.shift == 0), default=-1)
    departed = segments[last_aligned + 1 :]
    a, b = mine.by_number, theirs.by_number
    start = departed[0].start
    while start and a[numbers[start - 1]] != b[numbers[start - 1]]:
        start -= 1  # a call that one side made in addition matches nothing, with the shift or without it
    departed[0] = departed[0]._replace(start=start)
    head, tail = numbers[:start], numbers[start:]
    differing = [number for number in tail if a[number] != b[number]]
    shift_at = _shifts(numbers, departed)
    hits = [number for number in tail if a[number] == b.get(number + shift_at[number])]
    matched, unshifted = len(hits) / len(tail), 1 - len(differing) / len(tail)
    telling = [number for number in hits if a[number] != b[number]]
    clearly = matched >= _MATCHES and matched - unshifted >= _BETTER and len(telling) >= _TELLING
    if not clearly and (matched < _ALL or len(telling) < _MANY):
        return None
    agreed = {a[number] for number in head if a[number] == b[number]}
    if len(head) >= _HEAD and _share(a[number] == b[number] for number in head) >= _MATCHES:
        if _share(b[number] in agreed and a[number] in agreed for number in telling) < _MATCHES:
            return None  # other lines than before: ranks may have different ones there
        number: int | None = differing[0]
    elif whole or not _is_sure_without_beginning(mine, theirs, tail, matched):
        return None
    else:
        number = None
    at = number if number is not None else differing[0]
    return FirstDifference(
        number=number,
        ranks=mine.ranks,
        others=theirs.ranks,
        shift=departed[-1].shift,
        first_shift=departed[0].shift,
        call=recorded[mine.ranks[0]].by_number()[at],
        others_call=recorded[theirs.ranks[0]].by_number()[at],
        calls_ago=numbers[-1] - at,
        steps_ago=_steps(b, at, numbers[-1]),
        matched=matched,
        matched_unshifted=unshifted,
    )


def _share(hits: Iterable[bool]) -> float:
    values = list(hits)
    return sum(values) / len(values) if values else 0.0


def _is_sure_without_beginning(mine: _History, theirs: _History, tail: Sequence[int], matched: float) -> bool:
    """Whether calls that were shifted in the whole record can't be what the ranks are meant to do: most ranks agree with each
    other, and the shift explains clearly more than roles do. Ranks with roles (one sends while others receive, ranks take turns)
    may call the same lines in another order, but then each line of one side is always met by the same line of the other."""
    if len(theirs.ranks) < 2 or len(mine.ranks) >= len(theirs.ranks):
        return False
    return matched - _explained_by_roles(mine, theirs, tail) >= _BETTER_THAN_ROLES


def _explained_by_roles(mine: _History, theirs: _History, numbers: Sequence[int]) -> float:
    """The share of the calls that fit if each line of one side has one partner on the other side."""
    pairs = Counter((mine.by_number[number], theirs.by_number[number]) for number in numbers)
    sides = ([(a, n) for (a, _), n in pairs.items()], [(b, n) for (_, b), n in pairs.items()])
    return max(map(_explained, sides)) / max(1, len(numbers))


def _explained(pairs: Iterable[tuple[int, int]]) -> int:
    """The sum of the counts of each line's most frequent partner."""
    most: dict[int, int] = {}
    for line, times in pairs:
        most[line] = max(times, most.get(line, 0))
    return sum(most.values())


def _shifts(numbers: Sequence[int], segments: Sequence[_Segment]) -> dict[int, int]:
    """The shift at each number from the first segment on."""
    starts = [part.start for part in segments]
    return {
        numbers[at]: segments[max(0, bisect_left(starts, at + 1) - 1)].shift for at in range(starts[0], len(numbers))
    }


def _segments(numbers: Sequence[int], a: dict[int, int], b: dict[int, int]) -> list[_Segment]:
    """The shifts that explain `a` by `b` with the fewest calls that do not match and the fewest changes of the shift (Viterbi's
    algorithm). Of equal explanations, the one that changes last."""
    shifts = [0, *_candidates(numbers, a, b)]
    if len(shifts) == 1 or not numbers:
        return []
    change = [_SWITCH + _FAR * abs(shift) for shift in shifts]
    costs = [0.0, *change[1:]]
    came_from: list[list[int]] = []
    for number in numbers:
        best = min(range(len(shifts)), key=lambda at: costs[at])
        sources, step = [], []
        for at, shift in enumerate(shifts):
            changed = costs[best] + change[at]
            # On a tie, change as late as possible: going back from the end, that is to have changed here.
            sources.append(at if costs[at] < changed else best)
            step.append(min(costs[at], changed) + _cost(number, shift, a, b))
        came_from.append(sources)
        costs = step
    state = min(range(len(shifts)), key=lambda at: costs[at])
    segments: list[_Segment] = []
    for position in range(len(numbers) - 1, -1, -1):
        source = came_from[position][state]
        if source != state:
            segments.append(_Segment(position, shifts[state]))
            state = source
    segments.append(_Segment(0, shifts[state]))
    return segments[::-1]


def _cost(number: int, shift: int, a: dict[int, int], b: dict[int, int]) -> float:
    met = b.get(number + shift)
    return _UNKNOWN if met is None else float(a[number] != met)


def _candidates(numbers: Sequence[int], a: dict[int, int], b: dict[int, int]) -> list[int]:
    """The shifts under which most calls of some stretch match, if more do than without a shift. Of shifts that are equal but for
    whole steps, the nearest."""
    stretches = (numbers[start : start + _STRETCH] for start in range(0, len(numbers), _STRETCH // 2))
    differing = [stretch for stretch in stretches if any(a[number] != b[number] for number in stretch)]
    best: Counter[int] = Counter()
    for stretch in differing[:: len(differing) // _MOST_STRETCHES + 1]:
        rates = {shift: _rate(stretch, shift, a, b) for shift in _SHIFTS}
        nearest = max(_SHIFTS, key=lambda shift: (rates[shift], -abs(shift), shift))
        if nearest:
            best[nearest] += 1
    return [shift for shift, _ in best.most_common(_CANDIDATES)]


def _rate(stretch: Sequence[int], shift: int, a: dict[int, int], b: dict[int, int]) -> float:
    """The share of calls that match, among those that `b` has with that shift; 0 if it has less than half of them."""
    pairs = [(a[number], b[number + shift]) for number in stretch if number + shift in b]
    return sum(x == y for x, y in pairs) / len(pairs) if 2 * len(pairs) >= len(stretch) else 0.0


def _steps(by_number: dict[int, int], first: int, last: int) -> int | None:
    """How many times the calls repeated between two numbers; None if they do not repeat."""
    before = [by_number[number] for number in sorted(by_number) if number <= last][-_LAST:]
    length = period(before)
    return (last - first) // length if length is not None else None


def period(calls: Sequence[int]) -> int | None:
    """After how many calls a sequence repeats; None if it does not."""
    for length in range(1, len(calls) // 3 + 1):
        repeated = len(calls) - length
        if sum(x == y for x, y in zip(calls, calls[length:], strict=False)) >= _ALWAYS * repeated:
            return length
    return None
