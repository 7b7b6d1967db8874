"""What the calls of a group's ranks show together, at the number at which they wait. Exactly one answer for each group.

Lines are not compared here: two lines may make one call. `history` compares them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hangdoc.reasoning.evidence.records import unfinished_transfers
from hangdoc.reasoning.ledger.expected import what_always_followed, what_followed, what_is_expected
from hangdoc.reasoning.model.ledger import (
    Call,
    GroupCalls,
    GroupKind,
    Ledger,
    Pending,
    RankCalls,
    Signature,
    amounts,
    plain_name,
    signature,
)
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Recorded


class Side(NamedTuple):
    """Ranks that are in calls that meet each other."""

    ranks: tuple[int, ...]
    call: Call
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


Comparison = Behind | Differs | SizesDiffer | Unfinished | Agree


def compare(group: GroupCalls) -> Comparison:
    """The answer for one group. A rank whose calls are not known is left out: it may be behind."""
    oldest = {rank: calls.pending[0] for rank, calls in group.ranks.items() if calls.pending}
    numbers = [waiting.number for waiting in oldest.values() if waiting.source == "recorder"]
    if not numbers:
        return Agree()
    number = min(numbers)
    entered: dict[int, Call] = {}
    inferred: set[int] = set()
    behind: list[int] = []
    for rank, calls in group.ranks.items():
        waiting = oldest.get(rank)
        if waiting is not None and waiting.source == "inferred" and (calls.made is None or calls.made < number):
            entered[rank] = waiting.call
            inferred.add(rank)
        elif (call := calls.at(number)) is not None:
            entered[rank] = call
        elif calls.made is not None and calls.made < number:
            behind.append(rank)
    by_name = _sides(entered, lambda call: plain_name(call.op), inferred)
    if behind:
        return Behind(number, tuple(sorted(behind)), by_name)
    if len(by_name) > 1:
        return Differs(number, by_name)
    by_amount = _sides({rank: call for rank, call in entered.items() if rank not in inferred}, amounts)
    if len(by_amount) > 1:
        return SizesDiffer(number, by_amount)
    waiting_ranks = sorted(rank for rank, waiting in oldest.items() if waiting.number == number)
    return Unfinished(number, by_name[0].call, tuple(waiting_ranks))


def _sides(
    entered: dict[int, Call], key: Callable[[Call], Hashable], inferred: Collection[int] = ()
) -> tuple[Side, ...]:
    """Ranks whose calls have the same key, the largest side first. `inferred`: the ranks whose calls only their stacks show."""
    parts: dict[Hashable, list[int]] = {}
    for rank, call in entered.items():
        parts.setdefault(key(call), []).append(rank)
    sides = (
        Side(tuple(sorted(ranks)), entered[ranks[0]], all(rank in inferred for rank in ranks))
        for ranks in parts.values()
    )
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
            return SizesDiffer(at, _sides({rank: calls.by_number()[at] for rank, calls in made.items()}, amounts))
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


# --- which side is odd ------------------------------------------------------------------------------------------------


_LEAST_AGREED = 5
"""Calls that agreed before a first difference."""
_GroupCall = tuple[str | None, Signature]
"""A call and its group."""
_Place = tuple[str | None, int]
"""A group, and the number of a call in it."""
_Placed = tuple[_Place, _GroupCall]


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
    perhaps_earlier: bool = False
    """Whether they may have skipped an earlier call of the same operation and sizes: those since met the calls after them."""


def find_odd(group: GroupCalls, comparison: Differs | SizesDiffer) -> Odd | None:
    """The odd side: of sides of different size, the smaller one; of two that are equal, the one whose call, where they parted, is
    not what followed the same calls before. A loop that has run many times makes the next call predictable; in a first round
    nothing does. None if there are as many ranks on each side, and the past does not tell, or if a call is only
    inferred."""
    sides = comparison.sides
    if any(side.inferred for side in sides):
        return None
    if ranks := blamed(comparison):
        return _make_odd(group, comparison.number, ranks, {rank: side.call for side in sides for rank in side.ranks})
    if (departed := _find_first_departed(group, comparison)) is not None:
        return departed
    candidates = {signature(side.call) for side in sides}
    pasts = (_past(group, comparison.number, side.ranks) for side in sides)
    expected = {what_is_expected(past, candidates) for past in pasts} - {None}
    if len(expected) != 1 or len(candidates) < 2:
        return None
    odd = tuple(sorted(rank for side in sides if signature(side.call) not in expected for rank in side.ranks))
    called = {rank: side.call for side in sides for rank in side.ranks}
    return _make_odd(group, comparison.number, odd, called, by_past=True)


def _make_odd(
    group: GroupCalls, number: int, ranks: tuple[int, ...], called: Mapping[int, Call], *, by_past: bool = False
) -> Odd:
    """What `ranks` did at a number. `called`: the calls of all ranks there."""
    mine = called[ranks[0]]
    theirs = next(call for rank, call in called.items() if rank not in ranks)
    made_before = {signature(call) for calls in group.ranks.values() for at, call in _numbered(calls) if at < number}
    before = next((call for rank in ranks for at, call in _numbered(group.ranks[rank]) if at == number - 1), None)
    earlier = before is not None and signature(before)[:2] == signature(theirs)[:2]
    skipped = signature(mine) in made_before
    return Odd(number, ranks, mine, theirs, skipped=skipped, by_past=by_past, perhaps_earlier=earlier)


def _find_first_departed(group: GroupCalls, comparison: Differs | SizesDiffer) -> Odd | None:
    """The side that departed from its own past where the two first called other lines than each other. From there on their calls
    met by chance, being equal in operation and size, so the past after it tells nothing. None if they parted only at the number
    compared, or if each side, or none, did what followed before: ranks may make one call at two lines."""
    sides = [[group.ranks[rank].by_number() for rank in side.ranks] for side in comparison.sides]
    number = _find_first_apart(sides, comparison.number)
    if number == comparison.number:
        return None
    firsts = [side[0] for side in sides]
    candidates = {signature(made[number]) for made in firsts}
    expected = [
        what_followed([signature(made[at]) for at in sorted(made) if at < number], candidates) for made in firsts
    ]
    follows = [signature(made[number]) == followed for made, followed in zip(firsts, expected, strict=True)]
    if None in expected or all(follows) or not any(follows):
        return None
    odd = [side.ranks for side, kept in zip(comparison.sides, follows, strict=True) if not kept]
    called = {rank: group.ranks[rank].by_number()[number] for side in comparison.sides for rank in side.ranks}
    return _make_odd(group, number, tuple(sorted(rank for ranks in odd for rank in ranks)), called, by_past=True)


class Meeting(NamedTuple):
    """The last call before in which the present call of a rank met one of another rank."""

    call: Call
    """Of the other rank."""
    apart: bool
    """Whether each made it at a line of its own."""
    since: bool
    """Whether the rank has made the other rank's present call since."""


def find_last_meeting(group: GroupCalls, number: int, rank: int, other: int) -> Meeting | None:
    """Where the call that a rank made at a number met one of another rank before. None if it did not by their records."""
    ours, theirs = (group.ranks[each].by_number() if each in group.ranks else {} for each in (rank, other))
    mine, awaited = ours.get(number), theirs.get(number)
    if mine is None or awaited is None or not mine.sites:
        return None
    before = [at for at in sorted(ours.keys() & theirs.keys()) if at < number]
    last = next((at for at in reversed(before) if signature(ours[at]) == signature(mine)), None)
    if last is None or plain_name(theirs[last].op) != plain_name(mine.op):
        return None
    made = {(plain_name(call.op), call.site) for at, call in ours.items() if last < at < number}
    apart = None not in (theirs[last].site, mine.site) and theirs[last].site != mine.site
    return Meeting(theirs[last], apart, since=(plain_name(awaited.op), awaited.site) in made)


def find_earlier_difference(group: GroupCalls, comparison: Differs | SizesDiffer) -> tuple[int, dict[int, Call]] | None:
    """The number, before the one compared, since which the first ranks of the sides each made their calls at other lines,
    and their calls of it by rank. None if there is none, or if their records do not show that all calls before were the same:
    ranks may make one call at two lines."""
    made = {side.ranks[0]: group.ranks[side.ranks[0]].by_number() for side in comparison.sides}
    number = _find_first_apart([[calls] for calls in made.values()], comparison.number)
    before = [at for at in set.intersection(*map(set, made.values())) if at < number]
    agreed = all(len({signature(calls[at]) for calls in made.values()}) == 1 for at in before)
    if number == comparison.number or len(before) < _LEAST_AGREED or not agreed:
        return None
    return number, {rank: calls[number] for rank, calls in made.items()}


def _find_first_apart(sides: Sequence[Sequence[Mapping[int, Call]]], number: int) -> int:
    """The number since which sides are apart in each call, up to `number`, at which they are."""
    while all(number - 1 in made for side in sides for made in side) and _are_apart(sides, number - 1):
        number -= 1
    return number


def _are_apart(sides: Sequence[Sequence[Mapping[int, Call]]], number: int) -> bool:
    """Whether all ranks of a side made the same call of a number, and each side another one."""
    made = [{signature(calls[number]) for calls in side} for side in sides]
    return all(len(each) == 1 for each in made) and len(set().union(*made)) == len(made)


def find_odd_across(ledger: Ledger, ranks: Iterable[int]) -> Odd | None:
    """The same for ranks that wait in calls of different groups: whose call is not what followed the calls before, of all groups
    together, by the longest record of a member of these groups. Who is no member of both is odd only by its own past. None if a
    rank's wait is not recorded, or nothing tells."""
    waiting: dict[int, tuple[str | None, Call]] = {}
    for rank in ranks:
        pending = _recorded_waits(ledger, rank)
        if len(pending) != 1:
            return None
        waiting[rank] = pending[0]
    names = {name for name, _ in waiting.values()}
    members = [rank for rank in waiting if names <= {group.name for group, _ in ledger.of_rank(rank)}]
    past = max((_complete_calls(ledger, rank) for rank in members), key=len, default=[])
    candidates = {(name, signature(call)) for name, call in waiting.values()}
    expected = what_followed(past, candidates)
    made = {rank: (name, signature(call)) for rank, (name, call) in waiting.items()}
    if expected is None or len(candidates) != 2 or all(made[rank] == expected for rank in members):
        return None
    others = sorted(rank for rank in waiting if made[rank] != expected)
    odd = tuple(
        rank
        for rank in others
        if rank in members or not _keeps_to_past(_complete_calls(ledger, rank), made[rank], amounts_too=False)
    )
    group_name, mine = waiting[odd[0]]
    theirs = next(waiting[rank][1] for rank in waiting if made[rank] == expected)
    return Odd(0, odd, mine, theirs, skipped=(group_name, signature(mine)) in past, by_past=True)


def find_odd_by_own_past(ledger: Ledger, ranks: Iterable[int]) -> Odd | None:
    """The same for ranks of which each is compared with its own past (`find_departed`): those of several roles come to a call on
    ways of their own. None if none departs, if the others do not wait for each of those who do, or if these are no fewer than
    the other members of the group in which they wait: a call that is made rarely departs from every past."""
    ranks = tuple(ranks)
    odd = find_departed(ledger, ranks)
    others = [rank for rank in ranks if rank not in odd]
    if not odd or not _waits_for_all(ledger, others, odd) or not _are_few_in_group(ledger, odd, ranks):
        return None
    group_name, mine = _recorded_waits(ledger, odd[0])[0]
    _, theirs = _recorded_waits(ledger, others[0])[0]
    made = (group_name, signature(mine)) in _complete_calls(ledger, odd[0])
    return Odd(0, odd, mine, theirs, skipped=made, by_past=True)


def _waits_for_all(ledger: Ledger, waiting: Iterable[int], ranks: Iterable[int]) -> bool:
    """Whether each of some ranks is behind in a group in which one of `waiting` waits."""
    behind: set[int] = set()
    for rank in waiting:
        for group, calls in ledger.of_rank(rank):
            if calls.pending:
                behind.update(_list_behind(group, calls.pending[0].number))
    return behind.issuperset(ranks)


def _list_behind(group: GroupCalls, number: int) -> Iterator[int]:
    """The ranks that have not made the call of a number in a group."""
    return (rank for rank, calls in group.ranks.items() if calls.made is not None and calls.made < number)


def _are_few_in_group(ledger: Ledger, odd: Collection[int], ranks: Collection[int]) -> bool:
    """Whether fewer than half of the members of each group in which an odd rank waits are odd."""
    groups = (group for rank in odd for group, calls in ledger.of_rank(rank) if calls.pending)
    return all(
        2 * sum(member in odd for member in group.members) < sum(member in ranks for member in group.members)
        for group in groups
    )


def find_departed(ledger: Ledger, ranks: Iterable[int]) -> tuple[int, ...]:
    """The ranks that wait in another call than the one that always followed the same calls before, in all of their groups
    together. Each rank is compared with its own past, so this also holds where no two of them made the same calls. Amounts, which
    differ from batch to batch in a server, tell calls of the past apart only if nothing else does. Empty if a rank's wait is not
    recorded, if its past does not tell, or if no fewer ranks depart than do not."""
    made: dict[int, tuple[list[_GroupCall], _GroupCall]] = {}
    for rank in ranks:
        pending = _recorded_waits(ledger, rank)
        if len(pending) != 1:
            return ()
        name, call = pending[0]
        made[rank] = _complete_calls(ledger, rank), (name, signature(call))
    return _list_departed(made, amounts_too=False) or _list_departed(made, amounts_too=True)


def _list_departed(
    made: Mapping[int, tuple[Sequence[_GroupCall], _GroupCall]], *, amounts_too: bool
) -> tuple[int, ...]:
    """The ranks whose last call is another one than the calls before it let expect. `made`: both, by rank."""
    keeps = {rank: _keeps_to_past(past, last, amounts_too=amounts_too) for rank, (past, last) in made.items()}
    departed = tuple(rank for rank, kept in keeps.items() if kept is False)
    return departed if None not in keeps.values() and 2 * len(departed) < len(made) else ()


def _keeps_to_past(past: Sequence[_GroupCall], made: _GroupCall, *, amounts_too: bool) -> bool | None:
    """Whether a call is the one that always followed the same calls before; None if the past does not tell."""
    expected = what_always_followed(past if amounts_too else list(map(_without_amounts, past)))
    return _without_amounts(made) == _without_amounts(expected) if expected is not None else None


def _without_amounts(made: _GroupCall) -> _GroupCall:
    group, (op, _, lines) = made
    return group, (op, (), lines)


class LeftOut(NamedTuple):
    """A call that most ranks made, each in its own group of a kind, and some did not."""

    ranks: tuple[int, ...]
    kind: GroupKind
    number: int
    """Of the call in its group."""


def find_left_out_by_few(ledger: Ledger, ranks: Iterable[int]) -> LeftOut | None:
    """The call in which some ranks now wait for a few others that made another one there, where the orders of the calls of all
    first differ. None if most did not make it, or if the records show no same beginning of these. Only ranks with as many groups
    of each of these kinds have the same role, and can be compared."""
    calls = _calls_of(ledger, ranks)
    orders, kind_of = _order_by_kind(calls)
    longest = max(orders.values(), key=len, default=[])
    ends = (_count_same(order, longest) for order in orders.values() if order != longest[: len(order)])
    at = min(ends, default=None)
    whole = all(made.whole for groups in calls.values() for _, made in groups)
    if at is None or (at < _LEAST_AGREED and not whole):
        return None
    by_call: dict[tuple[int, int], list[int]] = {}
    for rank, order in orders.items():
        if at < len(order):
            by_call.setdefault(order[at], []).append(rank)
    kinds = {kind_of[form] for _, form in by_call}
    roles = {rank: Counter(group.kind for group, _ in groups if group.kind in kinds) for rank, groups in calls.items()}
    usual = max(by_call, key=lambda made: len(by_call[made]))
    fewer = tuple(sorted(rank for made, alike in by_call.items() if made != usual for rank in alike))
    role = roles[fewer[0]]
    most = [rank for rank in by_call[usual] if roles[rank] == role]
    if len(fewer) >= len(most) or any(roles[rank] != role for rank in fewer):
        return None
    number, form = usual
    return LeftOut(fewer, kind_of[form], number) if _are_awaited(ledger, kind_of[form], number, fewer) else None


def _calls_of(ledger: Ledger, ranks: Iterable[int]) -> dict[int, list[tuple[GroupCalls, RankCalls]]]:
    """The groups of each rank with its calls in them, in one pass over all groups."""
    calls: dict[int, list[tuple[GroupCalls, RankCalls]]] = {rank: [] for rank in ranks}
    for group in ledger.groups:
        for rank, made in group.ranks.items():
            if rank in calls:
                calls[rank].append((group, made))
    return calls


_Order = list[tuple[int, int]]
"""(number in its group, form) of the calls of a rank. Equal operations and lines in groups of one kind have one form."""


def _order_by_kind(
    calls: Mapping[int, Sequence[tuple[GroupCalls, RankCalls]]],
) -> tuple[dict[int, _Order], list[GroupKind]]:
    """The calls of each rank in the order in which it made them, from the oldest number on that all records have of a kind; and
    the kind of the group of each form."""
    oldest: dict[GroupKind, int] = {}
    for group, made in (each for groups in calls.values() for each in groups):
        first = made.numbers[0] if made.numbers else (made.made or 0) + 1  # all of them may be overwritten
        oldest[group.kind] = max(oldest.get(group.kind, 1), first if not made.whole else 1)
    forms: dict[tuple[GroupKind, str, object], int] = {}
    orders: dict[int, _Order] = {}
    for rank, groups in calls.items():
        timed: list[tuple[int, int, int]] = []
        for group, made in groups:
            kind = group.kind
            known = {}
            for key, call in {id(call): call for call in made.calls}.items():  # equal calls of a rank are one object
                op, _, lines = signature(call)
                known[key] = forms.setdefault((kind, op, lines), len(forms))
            begin = bisect_left(made.numbers, oldest[kind])
            columns = zip(made.made_us[begin:], made.numbers[begin:], made.calls[begin:], strict=True)
            timed += [(at, number, known[id(call)]) for at, number, call in columns]
        orders[rank] = [(number, form) for _, number, form in sorted(timed)]
    return orders, [kind for kind, _, _ in forms]


def _count_same(order: _Order, other: _Order) -> int:
    """How many calls two orders have in common at their beginning."""
    return next(
        (at for at, (a, b) in enumerate(zip(order, other, strict=False)) if a != b), min(len(order), len(other))
    )


def _are_awaited(ledger: Ledger, kind: GroupKind, number: int, ranks: Iterable[int]) -> bool:
    """Whether each of some ranks is behind in a group of a kind in which another member waits at a number."""
    behind: set[int] = set()
    for group in ledger.groups:
        if group.kind == kind and any(c.pending and c.pending[0].number == number for c in group.ranks.values()):
            behind.update(_list_behind(group, number))
    return behind.issuperset(ranks)


def find_left_out(ledger: Ledger, group: GroupCalls, behind: Behind) -> tuple[int, ...]:
    """The members of a group that left out the call in which others of it wait: where their calls first differ from those of one
    that waits, in all groups that both are in, that call nearly always followed the same calls before. Ranks that are no members
    say nothing of it. Empty if the past of one of them does not tell, if it has made no other call since, or if most members are
    behind: a call may end for all, and one rank makes it once too often."""
    waits = (n for n, calls in group.ranks.items() if calls.pending and calls.pending[0].number == behind.number)
    waiting = next(waits, None)
    if waiting is None or len(_recorded_waits(ledger, waiting)) != 1 or 2 * len(behind.ranks) > len(group.members):
        return ()
    known = [each for each, _ in ledger.of_rank(waiting)]
    sharing: dict[tuple[int, ...], list[int]] = {}
    for rank in behind.ranks:
        sharing.setdefault(tuple(at for at, each in enumerate(known) if rank in each.ranks), []).append(rank)
    awaited = (group.name, behind.number)
    left_out = (
        _have_left_out([known[at] for at in shared], alike, waiting, awaited) for shared, alike in sharing.items()
    )
    return behind.ranks if all(left_out) else ()


def _have_left_out(shared: Sequence[GroupCalls], ranks: Iterable[int], waiting: int, place: _Place) -> bool:
    """Whether ranks each made another call in place of the one in which another rank waits, and that one was due there. `shared`:
    the groups that all of them are in. False if the record of that rank has no calls up to it."""
    theirs = _order_calls(shared, waiting)
    end = next((at for at, (made_at, _) in enumerate(theirs) if made_at == place), 0)
    if end == 0:
        return False
    before, awaited = theirs[:end], theirs[end][1]
    candidates = {awaited}
    for rank in ranks:
        made = _find_made_instead(before, _order_calls(shared, rank))
        if made is None or made[1] == awaited[1]:  # one line goes over the groups, in another order
            return False
        candidates.add(made)
    return what_followed([call for _, call in before], candidates) == awaited


def _find_made_instead(before: Sequence[_Placed], ours: Sequence[_Placed]) -> _GroupCall | None:
    """The first call of a rank after those that another one made before it waited. None if too few of them are in both records,
    if they differ there, or if the rank has made none since."""
    last = before[-1][0]
    at = next((at for at in range(len(ours) - 1, -1, -1) if ours[at][0] == last), None)
    if at is None or at + 1 == len(ours):
        return None
    agreed = min(at + 1, len(before))
    if agreed < _LEAST_AGREED or ours[at + 1 - agreed : at + 1] != before[-agreed:]:
        return None
    return ours[at + 1][1]


def _order_calls(groups: Iterable[GroupCalls], rank: int) -> list[_Placed]:
    """The calls of a rank in some groups, in the order in which it made them, each with its place."""
    made: list[tuple[int, _Place, _GroupCall]] = []
    for group in groups:
        calls = group.ranks[rank]
        known = _know_calls(group, calls)
        columns = zip(calls.numbers, calls.calls, calls.made_us, strict=True)
        made += [(at, (group.name, number), known[id(call)]) for number, call, at in columns]
    return [(place, call) for _, place, call in sorted(made, key=lambda timed: timed[0])]


def _recorded_waits(ledger: Ledger, rank: int) -> list[tuple[str | None, Call]]:
    """The first unfinished call of a rank in each group, by its record."""
    return [
        (group.name, calls.pending[0].call)
        for group, calls in ledger.of_rank(rank)
        if calls.pending and calls.pending[0].source == "recorder"
    ]


def _complete_calls(ledger: Ledger, rank: int) -> list[_GroupCall]:
    """The calls of a rank in all of its groups, without those that it waits in, in the order in which it made them."""
    made: list[tuple[int, _GroupCall]] = []
    for group, calls in ledger.of_rank(rank):
        pending = {waiting.number for waiting in calls.pending}
        known = _know_calls(group, calls)
        columns = zip(calls.numbers, calls.calls, calls.made_us, strict=True)
        made += [(at, known[id(call)]) for number, call, at in columns if number not in pending]
    return [call for _, call in sorted(made, key=lambda timed: timed[0])]


def _know_calls(group: GroupCalls, calls: RankCalls) -> dict[int, _GroupCall]:
    """The calls of a rank in a group by `id`: equal calls of a rank are one object."""
    by_object = {id(call): call for call in calls.calls}
    return {key: (group.name, signature(call)) for key, call in by_object.items()}


def _numbered(calls: RankCalls) -> Iterable[tuple[int, Call]]:
    return zip(calls.numbers, calls.calls, strict=True)


def _past(group: GroupCalls, number: int, ranks: Iterable[int]) -> list[Signature]:
    """The calls before a number, of the one of some ranks with the longest record."""
    longest = max((group.ranks[rank] for rank in ranks), key=lambda calls: len(calls.numbers))
    return [signature(call) for n, call in _numbered(longest) if n < number]


# --- calls that are not finished --------------------------------------------------------------------------------------


def unfinished_calls(run: Run) -> Iterator[Pending | Recorded]:
    """All collectives, sends and receives. Of the last two, only the oldest of each direction between two ranks."""
    for group in run.ledger.groups:
        for calls in group.ranks.values():
            yield from calls.pending
    for process in run.processes.values():
        for _, call in unfinished_transfers(process):
            yield call
