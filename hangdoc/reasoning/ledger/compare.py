"""What the calls of a group's ranks show together, at the number at which they wait. Exactly one answer for each group.

Lines are not compared here: two lines may make one call. `history` compares them.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from hangdoc.reasoning.model.ledger import Call, GroupCalls, Pending, RankCalls, amounts, plain_name
from hangdoc.snapshot import Recorded


class Side(NamedTuple):
    """Ranks that are in calls that meet each other."""

    ranks: tuple[int, ...]
    call: Call | None
    """None if it is not in their record."""
    inferred: bool = False
    """Whether their stacks show it, and no record."""


class Behind(NamedTuple):
    """Some ranks have not made the call in which others wait."""

    number: int
    ranks: tuple[int, ...]
    waiting: tuple[Side, ...]


class Differs(NamedTuple):
    """All ranks have made their call of a number, and it is not the same one."""

    number: int
    sides: tuple[Side, ...]
    """The largest first."""


class SizesDiffer(NamedTuple):
    """All ranks are in the same call, with different amounts of data."""

    number: int
    sides: tuple[Side, ...]
    """The largest first."""


class Unfinished(NamedTuple):
    """All ranks have made the same call, and some or all wait in it."""

    number: int
    call: Call
    waiting: tuple[int, ...]


class Agree(NamedTuple):
    """No rank waits in the group, or nothing in the record contradicts that they will go on."""

    made: int | None
    """The last number that all ranks have made; None if unknown."""


Comparison = Behind | Differs | SizesDiffer | Unfinished | Agree


def compare(group: GroupCalls) -> Comparison:
    """The answer for one group. A rank whose calls are not known is left out: it may be behind."""
    numbered = {rank: calls for rank, calls in group.ranks.items() if calls.source == "recorder"}
    oldest = {rank: calls.pending[0] for rank, calls in group.ranks.items() if calls.pending}
    numbers = [waiting.number for rank, waiting in oldest.items() if waiting.source == "recorder"]
    if not numbers:
        return Agree(min((calls.made for calls in numbered.values() if calls.made is not None), default=None))
    number = min(numbers)
    entered: dict[int, tuple[Call | None, bool]] = {}
    behind = []
    for rank, calls in group.ranks.items():
        waiting = oldest.get(rank)
        if (call := calls.at(number)) is not None and not _is_inferred(waiting, number):
            entered[rank] = call, False
        elif waiting is not None and waiting.source == "inferred" and (calls.made is None or calls.made < number):
            entered[rank] = waiting.call, True
        elif calls.made is not None and calls.made < number:
            behind.append(rank)
    return _compared(number, entered, behind, [rank for rank, waiting in oldest.items() if waiting.number == number])


def _is_inferred(waiting: Pending | None, number: int) -> bool:
    return waiting is not None and waiting.source == "inferred" and waiting.number == number


def _compared(
    number: int, entered: dict[int, tuple[Call | None, bool]], behind: Iterable[int], waiting: Iterable[int]
) -> Comparison:
    behind, waiting = tuple(sorted(behind)), tuple(sorted(waiting))
    by_name = _sides(entered, lambda call: plain_name(call.op))
    if behind:
        return Behind(number, behind, by_name)
    if len(by_name) > 1:
        return Differs(number, by_name)
    by_amount = _sides({rank: at for rank, at in entered.items() if not at[1]}, amounts)
    if len(by_amount) > 1:
        return SizesDiffer(number, by_amount)
    call = by_name[0].call
    return Unfinished(number, call, waiting) if call is not None else Agree(number - 1)


def _sides(entered: dict[int, tuple[Call | None, bool]], key: Callable[[Call], Hashable]) -> tuple[Side, ...]:
    parts: dict[Hashable, list[int]] = {}
    for rank, (call, _) in entered.items():
        parts.setdefault(key(call) if call is not None else None, []).append(rank)
    sides = [
        Side(tuple(sorted(ranks)), entered[ranks[0]][0], all(entered[rank][1] for rank in ranks))
        for ranks in parts.values()
    ]
    return tuple(sorted(sides, key=lambda side: (-len(side.ranks), side.ranks)))


def sizes_before(group: GroupCalls, number: int) -> SizesDiffer | None:
    """The first call before a number to which the ranks passed different amounts of data. A card does not check them: the calls
    after it then meet others than their own. None if there is none in the record."""
    made = {rank: calls for rank, calls in group.ranks.items() if calls.source == "recorder"}
    if len(made) < 2:
        return None
    numbers = sorted(n for n in set.intersection(*(set(calls.numbers) for calls in made.values())) if n < number)
    classes = _equal_until(made.values(), numbers)
    for at, kinds in zip(numbers, zip(*classes, strict=True), strict=True):
        if len(set(kinds)) > 1 and len({name for name, _ in kinds}) == 1:
            return SizesDiffer(
                at, _sides({rank: (calls.by_number()[at], False) for rank, calls in made.items()}, amounts)
            )
    return None


_Kind = tuple[str, tuple[str, ...]]
"""The operation of a call, and its amounts of data."""


def _equal_until(ranks: Iterable[RankCalls], numbers: Iterable[int]) -> list[tuple[_Kind, ...]]:
    """What ranks called at some numbers, each different column once: in large runs, nearly all ranks have the same one."""
    numbers = tuple(numbers)
    kinds: dict[_Kind, int] = {}
    by_object: dict[int, int] = {}  # equal calls of a rank are one object, and comparing them takes long
    columns: dict[tuple[int, ...], None] = {}
    for calls in ranks:
        for call in calls.calls:
            if id(call) not in by_object:
                by_object[id(call)] = kinds.setdefault((plain_name(call.op), amounts(call)), len(kinds))
        by_number = calls.by_number()
        columns.setdefault(tuple(by_object[id(by_number[at])] for at in numbers))
    by_position = list(kinds)
    return [tuple(by_position[kind] for kind in column) for column in columns]


def blamed(comparison: Comparison) -> tuple[int, ...]:
    """The ranks that a comparison singles out: those behind, or the fewer ones of two sides. Empty if it singles out none."""
    if isinstance(comparison, Behind):
        return comparison.ranks
    if isinstance(comparison, Differs | SizesDiffer):
        most = len(comparison.sides[0].ranks)
        if all(len(side.ranks) < most for side in comparison.sides[1:]):
            return tuple(sorted(rank for side in comparison.sides[1:] for rank in side.ranks))
    return ()


class Limit(NamedTuple):
    """When torch ends a process at the earliest, because a call that it waits in has a timeout. torch notices the timeout
    some time later."""

    seconds: float
    """From now; 0 if it should have happened."""
    timeout_seconds: float


def next_timeout(waits: Iterable[Pending | Recorded]) -> Limit | None:
    """When torch ends the first of the processes that wait in some calls; None if no record shows that."""
    return min(
        (
            Limit(max(0.0, waiting.timeout_seconds - waiting.age_seconds), waiting.timeout_seconds)
            for waiting in waits
            if waiting.timeout_seconds
            and waiting.age_seconds is not None
            and waiting.age_seconds < waiting.timeout_seconds  # an older one has not ended it
        ),
        default=None,
    )


def wait_seconds(calls: Iterable[RankCalls]) -> float | None:
    """For how long all of some ranks have waited in a call; None if no age is recorded. In each group that is the oldest call
    that is not complete. Of all ranks and groups, it is the youngest: a thread may wait for hours in a group of its own."""
    oldest = (waiting.age_seconds for rank in calls for waiting in rank.pending[:1])
    return min((age for age in oldest if age is not None), default=None)
