"""Ranks that wait in calls which do not fit: in different calls, in one call with different roots or tensors, or in calls of two
threads.

The records say who is odd. Where they don't, a call that the source makes on some ranks only is odd, or else the call of the
fewer ranks; of two sides of one size, neither. Otherwise the source only explains the difference.
"""

import math
from collections.abc import Hashable, Iterable

from msgspec import structs

from hangdoc.parse import natural
from hangdoc.phrases import do, ranks
from hangdoc.reasoning.ledger.compare import (
    Behind,
    Comparison,
    Differs,
    Odd,
    SizesDiffer,
    Unfinished,
    compare,
    find_odd,
    find_odd_across,
    sizes_before,
)
from hangdoc.reasoning.model.agreement import compare_values
from hangdoc.reasoning.model.holds import Ends, Hold, InStore
from hangdoc.reasoning.model.kinds import (
    GroupOrder,
    LaunchedNotFinished,
    Mismatch,
    Roots,
    SameCall,
    Spinning,
    Subset,
    Tensors,
    Threads,
)
from hangdoc.reasoning.model.ledger import Call, GroupCalls, amounts
from hangdoc.reasoning.model.rank import Class, merge_classes, numbers_of, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions, operations
from hangdoc.reasoning.ranks.card import use_of_rank
from hangdoc.reasoning.ranks.on_card import first_transfers
from hangdoc.reasoning.ranks.place import is_ahead
from hangdoc.reasoning.ranks.recorded import TENSOR
from hangdoc.reasoning.waiting.point_to_point import KindWithCulprits, Parts
from hangdoc.torch_facts import call_names

Answers = list[tuple[GroupCalls, Comparison]]


def find_tensors(run: Run, classes: Parts) -> KindWithCulprits | None:
    """The call in which ranks of some classes wait, if others made it at the same line with other amounts of data. They may have
    come out of it: Gloo returns at once for an empty tensor. None if there is none."""
    for _, answer in _answers(run, classes):
        if isinstance(answer, SizesDiffer) and len({side.call.sites for side in answer.sides if side.call}) == 1:
            return _tensors(answer)
    return None


def _tensors(answer: SizesDiffer, earlier: int | None = None) -> KindWithCulprits:
    by_rank = [(n, side.call) for side in answer.sides if side.call is not None for n in side.ranks]
    shown = {n: call.tensors[0] for n, call in by_rank if call.tensors}
    values = compare_values({n: ", ".join(amounts(call)) for n, call in by_rank})
    return Tensors(values=values, shown=shown, op=by_rank[0][1].op, earlier=earlier), values.odd


def find_on_cards(run: Run, classes: Parts) -> KindWithCulprits | None:
    """What keeps cards from finishing calls that they have, if all classes wait for their cards: a call that some ranks skipped,
    an earlier call with different amounts of data, or something below the calls. None if a record is missing."""
    if (transfer := _launched_transfer(run, classes)) is not None:
        return transfer
    if any(part.first.wait is None or part.first.wait.number is None for part in classes):
        return None
    waiting, answers = set(numbers_of(classes)), _answers(run, classes)
    if (skipped := _skipped(run, classes, answers)) is not None:
        return skipped
    for group, answer in answers:
        if isinstance(answer, Unfinished) and waiting.issuperset(answer.waiting) and _is_complete(group):
            if (sizes := sizes_before(group, answer.number)) is not None:
                return _tensors(sizes, earlier=sizes.number)
            return _launched(run, group.name, answer.number, answer.call, group.members), ()
    return None


def _launched_transfer(run: Run, classes: Parts) -> KindWithCulprits | None:
    """A send that is launched on one card and its receive on the other, where ranks wait for each other. None if in each pair of
    them both sides are first in a send, or in a receive."""
    for part in classes:
        wait = part.first.wait
        if wait is None or wait.kind != "p2p" or wait.operation.backend != "nccl" or wait.operation.peer is None:
            return None
    for part in classes:
        rank, wait = part.first, part.first.wait
        peer = run.ranks.get(wait.operation.peer) if wait is not None and wait.operation.peer is not None else None
        if wait is None or peer is None or rank.process is None or peer.process is None:
            continue
        mine, theirs = first_transfers(rank.process, peer.rank), first_transfers(peer.process, rank.rank)
        if any((not sends) in theirs for sends in mine):
            call, pair = Call(wait.operation.op), (rank.rank, peer.rank)
            found = _launched(run, wait.operation.group, wait.operation.seq or 0, call, pair)
            return structs.replace(found, pair=pair), ()
    return None


def _launched(run: Run, group: str | None, number: int, call: Call, ranks: Iterable[int]) -> LaunchedNotFinished:
    """A call that all `ranks` have launched. A card that works has not come to it yet, so it ends by itself."""
    uses = [use_of_rank(run, run.ranks[rank]) for rank in ranks if rank in run.ranks]
    return LaunchedNotFinished(
        group=group,
        number=number,
        call=call,
        ends="by-itself" if "works" in uses else "unknown",
        cards_wait=set(uses) == {"waits"},
    )


def _spins_for_unknown(part: Class) -> bool:
    """Whether ranks spin in the driver, and neither a record nor a frame shows for which call."""
    wait = part.first.wait
    return part.first.spins and wait is not None and wait.number is None and wait.operation.op == "wait"


def _skipped(run: Run, parts: Parts, answers: Answers) -> KindWithCulprits | None:
    """Ranks that have not made the call in which others wait, and wait in one that those have made after it."""
    for group, answer in answers:
        if not isinstance(answer, Behind):
            continue
        waiting = next(
            n for n, calls in group.ranks.items() if calls.pending and calls.pending[0].number == answer.number
        )
        for mine in parts:
            if set(mine.ranks) <= set(answer.ranks) and _has_made_after(run, waiting, group, answer.number, mine):
                theirs = next(part for part in parts if waiting in part.ranks)
                reason = f"{ranks(mine.ranks)} did not call {_awaited(theirs)}"
                return Subset(parts=parts, reason=reason, others=(mine,)), mine.ranks
    return None


def _has_made_after(run: Run, rank: int, group: GroupCalls, number: int, part: Class) -> bool:
    """Whether a rank has made the call in which the ranks of a class wait after its own call `number` of `group`."""
    wait = part.first.wait
    other = run.ledger.group(wait.operation.group, rank) if wait is not None else None
    if wait is None or wait.number is None or other is None or other is group or rank not in other.ranks:
        return False
    theirs, mine = other.ranks[rank].made_at(wait.number), group.ranks[rank].made_at(number)
    return theirs is not None and mine is not None and theirs > mine


def _is_complete(group: GroupCalls) -> bool:
    return bool(group.members) and all(
        (calls := group.ranks.get(rank)) is not None and calls.source == "recorder" and calls.made is not None
        for rank in group.members
    )


def compare_calls(run: Run, parts: Parts) -> KindWithCulprits:
    """The kind of a cycle of collectives, and the ranks to blame: all, if nothing singles out some of them, and none, if
    the call of some is not known."""
    recorded = _by_record(run, parts) or _across_groups(run, parts)
    if recorded is not None:
        return recorded
    everyone = ranks_of(parts)
    sure = all(part.first.wait is not None and part.first.wait.sure for part in parts)
    ends: Ends = "never" if sure else "unknown"  # an operation that was inferred may be another one
    if _opposite_order(parts):
        return GroupOrder(parts=parts, ends=ends), everyone
    for mine in parts:
        others = [part for part in parts if part is not mine]
        if all(conditions.singled_out(mine.first, theirs.first) for theirs in others):
            return _explained(mine.ranks, mine, others[0], parts, ends), mine.ranks
    if any(map(_spins_for_unknown, parts)):
        return Spinning(ends="unknown"), ()  # it may be in the call of the others, or in kernels of its own
    smallest, *others = parts
    alone = all(len(part.ranks) > len(smallest.ranks) for part in others)
    if alone and not any(map(_has_root, parts)):
        return _explained(smallest.ranks, smallest, others[0], parts, ends), smallest.ranks
    return Mismatch(parts=parts, reason="", ends=ends), everyone


def _by_record(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the calls of one number that the ranks made; None if no record shows that, or nothing singles out a side."""
    for group, answer in _answers(run, parts):
        odd = find_odd(group, answer) if isinstance(answer, Differs | SizesDiffer) else None
        known = {rank for rank, calls in group.ranks.items() if calls.source == "recorder"}
        if odd is not None and known.issuperset(numbers_of(parts)) and (found := _found(odd, parts)) is not None:
            return found
    return None


def _across_groups(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the order in which the ranks made their calls of all groups together. At one line, a loop over the groups takes them in
    another order: then no call was left out."""
    if len({part.first.where for part in parts}) < len(parts):
        return None
    odd = find_odd_across(run.ledger, numbers_of(parts))
    return _found(odd, parts) if odd is not None else None


def _found(odd: Odd, parts: Parts) -> KindWithCulprits | None:
    mine = next((part for part in parts if set(part.ranks) & set(odd.ranks)), None)
    theirs = next((part for part in parts if not set(part.ranks) & set(odd.ranks)), None)
    if mine is None or theirs is None:
        return None
    return _explained(odd.ranks, mine, theirs, parts, "never", odd), odd.ranks


def _answers(run: Run, classes: Parts) -> Answers:
    """The comparison of each group in which a rank of some classes waits at the number compared."""
    waiting = set(numbers_of(classes))
    found = []
    for group in run.ledger.groups:
        answer = compare(group)
        number = getattr(answer, "number", None)
        pending = (one.number for n in waiting & group.ranks.keys() for one in group.ranks[n].pending)
        if number is not None and number in pending:
            found.append((group, answer))
    return found


def _explained(
    odd: tuple[int, ...], mine: Class, theirs: Class, parts: Parts, ends: Ends, record: Odd | None = None
) -> Subset | Mismatch:
    """What the source says of a difference whose odd side is known: whether a call was left out, or another one was made in its
    place. `mine` are odd ranks, `theirs` others, each with the call in which they wait."""
    who, called = ranks(odd), record.call.op if record is not None else name_call(mine)
    same_side = tuple(part for part in parts if set(part.ranks) & set(odd))
    others = tuple(part for part in parts if part not in same_side)
    if conditions.in_other_arm(mine.first, theirs.first):
        reason = f"the call of {who} is in the other branch of a condition"
        return Mismatch(parts=parts, reason=reason, ends=ends)
    if (event := conditions.find_occasional(mine.first, theirs.first)) is not None:
        test, frame = event
        reason = f"only {who} called {called}, in {frame.function} under `{test}`"
        return Subset(parts=parts, reason=reason, others=others, asked=test, ends=ends)
    if record is not None and not record.skipped and _has_passed(mine, record):
        site = record.call.site
        reason = f"only {who} called {called}" + (f" at {site.file}:{site.line}" if site is not None else "")
        return Subset(parts=parts, reason=reason, others=others, ends=ends)
    if record is not None and (record.skipped or is_ahead(mine.first, theirs.first)):
        reason = f"{who} did not call {_awaited(theirs)}"
        return Subset(parts=parts, reason=reason, others=same_side, ends=ends)
    if (condition := conditions.find_own_condition(mine.first, [theirs.first])) is not None:
        reason = f"only {who} called {called} (under `{condition}`)"
        return Subset(parts=parts, reason=reason, others=others, ends=ends)
    by_past = record is not None and record.by_past
    reason = (
        f"before, {name_call(theirs)} followed the same calls"
        if by_past
        else f"{do(odd, 'differs', 'differ')} from all others"
    )
    return Mismatch(parts=parts, reason=reason, ends=ends)


def _has_passed(part: Class, record: Odd) -> bool:
    """Whether ranks have come out of the odd call, and wait in a later one."""
    number = part.first.wait.number if part.first.wait is not None else None
    return number is not None and 0 < record.number < number


def _awaited(part: Class) -> str:
    return f"the {name_call(part)} that {do(part.ranks, 'is', 'are')} waiting in"


def name_call(part: Class) -> str:
    """The operation in which a class waits; one that is not known, by its line."""
    op = part.first.wait.operation.op if part.first.wait is not None else "wait"
    at = part.first.where
    if op != "wait":
        return op
    return f"collective at {at.file}:{at.line}" if at is not None else "collective"


def _has_root(part: Class) -> bool:
    """Whether ranks may come out of a class's call before all have made it: then their numbers do not show who is odd."""
    return part.first.wait is not None and part.first.wait.operation.op in call_names.ROOTED


def _opposite_order(parts: Parts) -> bool:
    """Whether each part waits in a different group, to which a rank of another part belongs as well."""
    groups = [part.first.wait.of_group for part in parts if part.first.wait is not None]
    # All ranks are in the default group, so a wait in it shows nothing about an order, unless it is the same call: a loop over
    # the groups.
    one_call = len({part.first.where for part in parts}) == 1 and parts[0].first.where is not None
    return len(set(groups)) > 1 and all(
        one_call
        if members is None
        else not set(members).isdisjoint(numbers_of(other for other in parts if other is not part))
        for part, (_, members) in zip(parts, groups, strict=True)
    )


def compare_arguments(classes: Iterable[Class]) -> tuple[Hold, tuple[int, ...]]:
    """(why all ranks of a group wait in one call, which ranks to blame)."""
    classes = tuple(classes)
    if all(one.first.spins for one in classes):
        return Spinning(), ()
    if all(one.first.wait is not None and one.first.wait.kind == "store" for one in classes):
        return InStore(), ranks_of(classes)  # not for each other, but for whoever should set the key
    return different_arguments(classes, complete=True) or _threads(classes) or _places(classes) or (SameCall(), ())


def _places(classes: Iterable[Class]) -> tuple[Mismatch, tuple[int, ...]] | None:
    """Calls of one operation at different lines: of different models, or of groups that could not be read. None if all are at
    one line."""
    parts = merge_classes(classes, lambda rank: rank.where)
    places = [f"{ranks(one.ranks)} at {at.file}:{at.line}" for one in parts if (at := one.first.where) is not None]
    if len(parts) < 2 or len(places) < len(parts):
        return None
    # Two lines may make one call, so this is no proof.
    reason = f"at different lines: {', '.join(places)}"
    return Mismatch(parts=parts, reason=reason, ends="unknown"), ranks_of(parts)


def _threads(classes: Iterable[Class]) -> tuple[Threads, tuple[int, ...]] | None:
    calls = [
        (one, thread.name or "another thread", other.operation.op)
        for one in classes
        if one.first.process is not None and not one.first.moving
        for thread, other in operations.find_calls_beside(one.first.process, one.first.thread, one.first.wait)
    ]
    if not calls:
        return None
    # That their order differs is inferred, not observed: two slow calls look the same for a while.
    return Threads(calls=tuple(calls), ends="unknown"), tuple(sorted({n for one, _, _ in calls for n in one.ranks}))


def different_arguments(classes: Iterable[Class], *, complete: bool) -> tuple[Roots | Tensors, tuple[int, ...]] | None:
    """The first call with different roots, or else with different tensors; None for none. Unless all ranks are in it
    (`complete`), they may be in different ones of a series of calls, whose roots come from a loop or from torch."""
    by_point: dict[Hashable, list[Class]] = {}
    for one in classes:
        if one.first.wait is not None and one.first.wait.kind == "collective" and not one.first.moving:
            by_point.setdefault(one.first.wait.point, []).append(one)
    roots = (_roots(alike, complete=complete) for alike in by_point.values())
    tensors = (_different_tensors(alike) for alike in by_point.values())
    return next((found for found in (*roots, *tensors) if found is not None), None)


def _roots(classes: list[Class], *, complete: bool) -> tuple[Roots, tuple[int, ...]] | None:
    waits = [(one, one.first.wait.root) for one in classes if one.first.wait is not None]
    if not complete:
        return None
    values = compare_values({n: str(root) for one, root in waits if root is not None for n in one.ranks})
    return (Roots(values=values), values.odd) if values.differs else None


def _different_tensors(classes: list[Class]) -> tuple[Tensors, tuple[int, ...]] | None:
    within: dict[tuple[tuple[int, ...], int | None], dict[int, str]] = {}
    for one in classes:
        if one.first.passed is not None:
            same_call = one.first.passed.lines, one.first.passed.number
            within.setdefault(same_call, {}).update(dict.fromkeys(one.ranks, one.first.passed.tensor))
    for shown in within.values():
        values = compare_values({rank: _amount(tensor) for rank, tensor in shown.items()})
        if values.differs:
            return Tensors(values=values, shown=shown), values.odd
    return None


def _amount(tensor: str) -> str:
    """Dtype and number of elements. The shape may differ if these are equal."""
    match = TENSOR.match(tensor)
    sizes = [natural(size) or 0 for size in (match[2] if match else "").split(", ") if size]
    return f"{match[1] if match else '?'} x {math.prod(sizes)}"
