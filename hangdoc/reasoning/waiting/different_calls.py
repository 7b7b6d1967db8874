"""Ranks that wait in calls which do not fit: in different calls, in one call with different roots or tensors, or in calls of two
threads.

The records say who is odd. Where they don't, a call that the source makes on some ranks only is odd, or else the call of the
fewer ranks; of two sides of one size, neither. Otherwise the source only explains the difference.
"""

from collections.abc import Hashable, Iterable, Mapping

from msgspec import structs

from hangdoc.diagnosis import Operation
from hangdoc.phrases import do, ranks
from hangdoc.program import early_exits
from hangdoc.reasoning.evidence.stack import reading
from hangdoc.reasoning.ledger.compare import (
    Agree,
    Behind,
    Comparison,
    Differs,
    Odd,
    SizesDiffer,
    Unfinished,
    compare,
    find_departed,
    find_last_meeting,
    find_left_out,
    find_left_out_by_few,
    find_odd,
    find_odd_across,
    find_odd_by_own_past,
    sizes_before,
)
from hangdoc.reasoning.model.agreement import compare_values
from hangdoc.reasoning.model.holds import Ends, Hold, InStore
from hangdoc.reasoning.model.kinds import (
    GroupOrder,
    LaunchedNotFinished,
    LeftLoop,
    Mismatch,
    Roots,
    SameCall,
    Spinning,
    Subset,
    Tensors,
    Threads,
)
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, amounts, describe_amount, signature
from hangdoc.reasoning.model.rank import Class, Rank, Wait, merge_classes, numbers_of, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions, operations
from hangdoc.reasoning.ranks.card import use_of_rank
from hangdoc.reasoning.ranks.counters import count_rounds, frame_of, with_counter_of
from hangdoc.reasoning.ranks.on_card import first_transfers
from hangdoc.reasoning.ranks.place import find_loops_entered, gives_batches, is_a_round_ahead, is_ahead, left_loops
from hangdoc.reasoning.waiting.point_to_point import KindWithCulprits, Parts
from hangdoc.snapshot import Loop
from hangdoc.torch_facts import call_names

Comparisons = list[tuple[GroupCalls, Comparison]]


def find_tensors(run: Run, classes: Parts) -> KindWithCulprits | None:
    """The call in which ranks of some classes wait, if others made it at the same line with other amounts of data. They may have
    come out of it: Gloo returns at once for an empty tensor. None if there is none."""
    for _, answer in _compare_groups(run, classes):
        if isinstance(answer, SizesDiffer) and len({side.call.sites for side in answer.sides if side.call}) == 1:
            return _describe_sizes(answer)
    return None


def _describe_sizes(answer: SizesDiffer, earlier: int | None = None) -> KindWithCulprits:
    by_rank = [(n, side.call) for side in answer.sides if side.call is not None for n in side.ranks]
    shown = {n: call.tensors[0] for n, call in by_rank if call.tensors}
    values = compare_values({n: ", ".join(amounts(call)) for n, call in by_rank})
    return Tensors(values=values, shown=shown, op=by_rank[0][1].op, earlier=earlier), values.odd


def find_on_cards(run: Run, classes: Parts) -> KindWithCulprits | None:
    """What keeps cards from finishing calls that they have, if all classes wait for their cards: a call that some ranks skipped,
    an earlier call with different amounts of data, or something below the calls. None if a record is missing."""
    if (transfer := _find_launched_transfer(run, classes)) is not None:
        return transfer
    if any(part.first.wait is None or part.first.wait.number is None for part in classes):
        return None
    waiting, answers = set(numbers_of(classes)), _compare_groups(run, classes)
    if (skipped := _find_skipped(run, classes, answers)) is not None:
        return skipped
    for group, answer in answers:
        if isinstance(answer, Unfinished) and waiting.issuperset(answer.waiting) and _is_complete(group):
            if (sizes := sizes_before(group, answer.number)) is not None:
                return _describe_sizes(sizes, earlier=sizes.number)
            return _describe_launched(run, group.name, answer.number, answer.call, group.members), ()
    return None


def _find_launched_transfer(run: Run, classes: Parts) -> KindWithCulprits | None:
    """A send that is launched on one card and its receive on the other, where ranks wait for each other. None if in each pair of
    them both sides are first in a send, or in a receive."""
    transfers: list[tuple[Rank, Operation, int]] = []
    for part in classes:
        wait = part.first.wait
        if wait is None or wait.kind != "p2p" or wait.operation.backend != "nccl" or wait.operation.peer is None:
            return None
        transfers.append((part.first, wait.operation, wait.operation.peer))
    for rank, operation, number in transfers:
        peer = run.ranks.get(number)
        if peer is None or rank.process is None or peer.process is None:
            continue
        mine, theirs = first_transfers(rank.process, peer.rank), first_transfers(peer.process, rank.rank)
        if any((not sends) in theirs for sends in mine):
            pair = (rank.rank, peer.rank)
            launched = _describe_launched(run, operation.group, operation.seq or 0, Call(operation.op), pair)
            return structs.replace(launched, pair=pair), ()
    return None


def _describe_launched(
    run: Run, group: str | None, number: int, call: Call, ranks: Iterable[int]
) -> LaunchedNotFinished:
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


def _find_skipped(run: Run, parts: Parts, answers: Comparisons) -> KindWithCulprits | None:
    """Ranks that have not made the call in which others wait, and wait in one that those have made after it."""
    for group, answer in answers:
        if not isinstance(answer, Behind):
            continue
        waiting = next(
            n for n, calls in group.ranks.items() if calls.pending and calls.pending[0].number == answer.number
        )
        for mine in parts:
            if set(mine.ranks) <= set(answer.ranks) and _has_made_after(run, waiting, group, answer.number, mine):
                theirs = next((part for part in parts if waiting in part.ranks), None)
                if theirs is not None:
                    reason = f"{ranks(mine.ranks)} did not call {_name_awaited_call(theirs)}"
                    return Subset(parts=parts, reason=reason, others=(mine,)), mine.ranks
    return None


def _has_made_after(run: Run, rank: int, group: GroupCalls, number: int, part: Class) -> bool:
    """Whether a rank has made the call in which the ranks of a class wait after its own call `number` of `group`."""
    wait = part.first.wait
    their_group = run.ledger.group(wait.operation.group, rank) if wait is not None else None
    if (
        wait is None
        or wait.number is None
        or their_group is None
        or their_group is group
        or rank not in their_group.ranks
    ):
        return False
    their_call_us, own_call_us = their_group.ranks[rank].made_at(wait.number), group.ranks[rank].made_at(number)
    return their_call_us is not None and own_call_us is not None and their_call_us > own_call_us


def _is_complete(group: GroupCalls) -> bool:
    return bool(group.members) and all(
        (calls := group.ranks.get(rank)) is not None and calls.source == "recorder" and calls.made is not None
        for rank in group.members
    )


def compare_calls(run: Run, parts: Parts) -> KindWithCulprits:
    """The kind of a cycle of collectives, and the ranks to blame: all, if nothing singles out some of them, and none, if
    the call of some is not known."""
    recorded = (
        _blame_by_record(run, parts)
        or _blame_by_most(run, parts)
        or _blame_by_order(run, parts)
        or _blame_in_group(run, parts)
        or _blame_by_own_past(run, parts)
    )
    if recorded is not None:
        return recorded
    everyone = ranks_of(parts)
    sure = all(part.first.wait is not None and part.first.wait.sure for part in parts)
    ends: Ends = "never" if sure else "unknown"  # an operation that was inferred may be another one
    if _opposite_order(parts):
        reason, departed = _explain_departed(run, everyone)
        if (passed := _find_passed(run, parts, _compare_groups(run, parts), departed, ends)) is not None:
            return passed, departed
        return GroupOrder(parts=parts, reason=reason, ends=ends), departed or everyone
    if (absent := _find_absent_members(parts, ends)) is not None:
        return absent
    for mine in parts:
        others = [part for part in parts if part is not mine]
        if all(conditions.singled_out(mine.first, theirs.first) for theirs in others):
            return _explain_odd_side(mine.ranks, mine, others[0], parts, ends), mine.ranks
    if any(map(_spins_for_unknown, parts)):
        return Spinning(ends="unknown"), ()  # it may be in the call of the others, or in kernels of its own
    smallest, *others = parts
    alone = all(len(part.ranks) > len(smallest.ranks) for part in others)
    if alone and not any(map(_has_root, parts)):
        return _explain_odd_side(smallest.ranks, smallest, others[0], parts, ends), smallest.ranks
    reason, departed = _explain_departed(run, everyone)
    return Mismatch(parts=parts, reason=reason, ends=ends), departed or everyone


def _find_passed(run: Run, parts: Parts, groups: Comparisons, departed: tuple[int, ...], ends: Ends) -> Subset | None:
    """The call of one of `groups` in which others wait, if `departed` ranks are a round ahead in the program without it: they
    left it out, and took the groups in no other order. None if the record or the program does not show that: in the same round,
    they may make it later."""
    for group, answer in groups:
        if departed and isinstance(answer, Behind) and set(departed) <= set(answer.ranks):
            left_out = _describe_left_out(run, parts, group, answer, departed, ends)
            if left_out is not None:
                return left_out
    return None


def _blame_in_group(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the calls of the members of one group: those that are behind in it left a call out, by the order of all calls that they
    share with who waits there. None if the records of the members, or the program, do not show that."""
    for group, answer in _compare_groups(run, parts):
        if not isinstance(answer, Behind) or not _is_complete(group) or not set(answer.ranks) <= set(numbers_of(parts)):
            continue
        absent = find_left_out(run.ledger, group, answer)
        left_out = _describe_left_out(run, parts, group, answer, absent, "never") if absent else None
        if left_out is not None:
            return left_out, absent
    return None


def _describe_left_out(
    run: Run, parts: Parts, group: GroupCalls, answer: Behind, absent: tuple[int, ...], ends: Ends
) -> Subset | None:
    """A call of a group that some of its members left out. None if they are not all a round ahead in the program of those who
    wait in it: in the same round, they may make it later."""
    waiting = {n for n, calls in group.ranks.items() if calls.pending and calls.pending[0].number == answer.number}
    present = (part for part in parts if waiting.intersection(part.ranks) and not set(absent) & set(part.ranks))
    theirs = next(present, None)
    if theirs is None or not all(is_a_round_ahead(run.ranks[rank], theirs.first) for rank in absent):
        return None
    return Subset(
        parts=parts,
        reason=f"{ranks(absent)} did not call {_name_awaited_call(theirs)}",
        others=tuple(part for part in parts if part is not theirs),
        group=group,
        ends=ends,
    )


def _find_absent_members(parts: Parts, ends: Ends) -> KindWithCulprits | None:
    """The members of a group that is being made, if they are elsewhere and more members are in the call that makes it. The others
    must make the call too, but they do not count: who is to be in the group shows which side of its members is odd. None if no
    group or several are being made, or no fewer members are absent than present."""
    making = [(part, wait.makes) for part in parts if (wait := part.first.wait) is not None and wait.makes is not None]
    if len(making) != 1:
        return None
    maker, members = making[0]
    absent = tuple(sorted(set(members).intersection(numbers_of(parts)).difference(maker.ranks)))
    if not 0 < len(absent) < len(set(members).intersection(maker.ranks)):
        return None
    who = do(absent, "is a member", "are members")
    reason = f"{who} of the new group of {ranks(members)}, but did not call {_name_awaited_call(maker, of_group=False)}"
    others = tuple(part for part in parts if set(part.ranks) & set(absent))
    return Subset(parts=parts, reason=reason, others=others, ends=ends), absent


def _explain_departed(run: Run, waiting: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Which of some ranks depart from the order of their own earlier calls, as a clause and by number; empty for none."""
    departed = find_departed(run.ledger, waiting)
    departs = do(departed, "departs from the order of its", "depart from the order of their")
    return (f"{departs} earlier calls" if departed else ""), departed


def _blame_by_record(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the calls of one number that the ranks made; None if no record shows that, or nothing singles out a side."""
    for group, answer in _compare_groups(run, parts):
        odd = find_odd(group, answer) if isinstance(answer, Differs | SizesDiffer) else None
        recorded = {rank for rank, calls in group.ranks.items() if calls.source == "recorder"}
        if odd is None or not recorded.issuperset(numbers_of(parts)):
            continue
        blamed = (
            _find_next_round(run, group, odd, parts)
            or _find_left_out_by_most(run, group, odd, parts)
            or _blame(run, odd, parts)
        )
        if blamed is not None:
            return blamed
    return None


def _find_next_round(run: Run, group: GroupCalls, odd: Odd, parts: Parts) -> KindWithCulprits | None:
    """What holds where the two sides are in the branches of a condition, each in a loop of its own role, and the call of one side
    met one of the other side before: no branch is wrong. If it is the odd ranks' call, they have left the loop of the last round
    in which the others wait. None where that is not so."""
    mine, theirs = _split_at(odd, parts)
    if mine is None or theirs is None or not set(mine.ranks) <= set(odd.ranks) or _has_passed(mine, odd):
        return None
    if not conditions.in_other_arm(mine.first, theirs.first):
        return None
    who = odd.ranks[0]
    others = [alike.first for alike in run.classes if not set(theirs.ranks).isdisjoint(alike.ranks)]
    met = [(rank, meeting) for rank in others if (meeting := find_last_meeting(group, odd.number, who, rank.rank))]
    apart = next((meeting.call for _, meeting in met if meeting.apart), None)
    for rank, meeting in sorted(met, key=lambda each: each[1].apart):  # those of the same role first
        site = meeting.call.site
        loops = find_loops_entered(rank, site) if apart is not None and site is not None and meeting.since else []
        if loops and not loops[0].skippable:
            loop = loops[0].loop
            out, within = with_counter_of(mine.first, loop), with_counter_of(rank, loop)
            sides = (Class(out, odd.ranks), Class(within, theirs.ranks))
            return LeftLoop(short=sides[0], inside=sides[1], loop=loop, met=apart), odd.ranks
    back = (find_last_meeting(group, odd.number, rank.rank, who) for rank in others)
    if apart is not None or any(meeting is not None and meeting.apart for meeting in back):
        return Mismatch(parts=parts, reason="", met_before=True), odd.ranks
    return None


def _find_left_out_by_most(run: Run, group: GroupCalls, odd: Odd, parts: Parts) -> KindWithCulprits | None:
    """The ranks that left a loop with as many calls as the odd ones, which are still in it and made the call in which they wait
    once in each round: the others left it out in some. None if nothing shows that, if the others have not all left the loop, or
    if a statement may have ended it."""
    mine, theirs = _split_at(odd, parts)
    if mine is None or theirs is None or set(mine.ranks) != set(odd.ranks):
        return None
    rest = tuple(part for part in parts if part is not mine)
    others = ranks_of(rest)
    if not all(run.ledger.have_made_as_many(other, rank) for other in others for rank in mine.ranks):
        return None
    for loop in (each.loop for each in left_loops(theirs.first, mine.first)):
        outside = (alike.first for alike in run.classes if not set(alike.ranks).isdisjoint(others))
        if _makes_call_in_each_round(mine.first, group, loop, others) and all(
            _has_left_after_more_rounds(rank, mine.first, loop) for rank in outside
        ):
            reason = f"{ranks(others)} did not call {_name_awaited_call(mine)}"
            return Subset(parts=parts, reason=reason, others=rest, loop=loop), others
    return None


def has_left_out(run: Run, outside: Rank, inside: Rank, loop: Loop) -> bool:
    """Whether the record shows that a rank which left a loop without the call in which another one waits left that out in some
    round: the other one made it in each of its own rounds, and those are fewer."""
    if count_rounds(with_counter_of(outside, loop))[0] is None:
        return False
    waited_for = (group for group, calls in run.ledger.of_rank(inside.rank) if calls.pending)
    return _has_left_after_more_rounds(outside, inside, loop) and any(
        outside.rank in group.ranks and _makes_call_in_each_round(inside, group, loop, [outside.rank])
        for group in waited_for
    )


def describe_skip(short: Class, inside: Class, loop: Loop, ends: Ends) -> Subset:
    """A call that ranks which now wait in none have left out in some round of a loop."""
    reason = f"{ranks(short.ranks)} did not call {_name_awaited_call(inside)}"
    return Subset(parts=(short, inside), reason=reason, others=(short,), loop=loop, ends=ends)


def _has_left_after_more_rounds(outside: Rank, inside: Rank, loop: Loop) -> bool:
    """Whether a rank has left a loop, after more rounds than another one has done in it as far as both are known."""
    done, theirs = (count_rounds(with_counter_of(rank, loop))[0] for rank in (outside, inside))
    left = any(each.loop == loop for each in left_loops(outside, inside))
    return left and (done is None or theirs is None or done > theirs)


def _makes_call_in_each_round(rank: Rank, group: GroupCalls, loop: Loop, others: Iterable[int]) -> bool:
    """Whether a rank made the call in which it waits once in each round of the pass of a loop over batches that nothing ends
    early, and the others began the pass after the same call. A loop over anything else may be longer on some ranks."""
    frame, view = frame_of(loop, rank), with_counter_of(rank, loop).loop
    if frame is None or view is None or not view.done or early_exits(loop) or not gives_batches(loop, rank):
        return False
    calls = group.ranks[rank.rank]
    counted = calls.count_within(frame.file, loop.line, loop.end_line)
    if counted is None or not (view.by_iterator or loop.every):  # a counter may count the calls, and not the rounds
        return False
    times, before = counted
    shared = {signature(call) for each in (rank.rank, *others) if (call := group.ranks[each].at(max(1, before)))}
    return times == view.done and len(shared) == 1


def _blame_by_most(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the order of calls that most ranks share, each in its own groups. None if nobody departed from one, or if those who did
    may make the call later."""
    left_out = find_left_out_by_few(run.ledger, numbers_of(parts))
    if left_out is None:
        return None
    groups: Comparisons = [
        (group, answer)
        for group, answer in _compare_groups(run, parts)
        if isinstance(answer, Behind) and (group.kind, answer.number) == (left_out.kind, left_out.number)
    ]
    passed = _find_passed(run, parts, groups, left_out.ranks, "never")
    return (passed, left_out.ranks) if passed is not None else None


def _blame_by_order(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By the order in which the ranks made their calls of all groups together. At one line, a loop over the groups takes them in
    another order: then no call was left out."""
    if len({part.first.where for part in parts}) < len(parts):
        return None
    odd = find_odd_across(run.ledger, numbers_of(parts))
    return _blame(run, odd, parts) if odd is not None else None


def _blame_by_own_past(run: Run, parts: Parts) -> KindWithCulprits | None:
    """By what each rank did before, in calls of all groups. Where each part waits in a group of the other one, the order may be
    what differs."""
    odd = find_odd_by_own_past(run.ledger, numbers_of(parts)) if not _opposite_order(parts) else None
    return _blame(run, odd, parts) if odd is not None else None


def _blame(run: Run, odd: Odd, parts: Parts) -> KindWithCulprits | None:
    mine, theirs = _split_at(odd, parts)
    if mine is None or theirs is None:
        return None
    if mine.first.rank not in odd.ranks:
        mine = Class(run.ranks[next(rank for rank in mine.ranks if rank in odd.ranks)], mine.ranks)
    counterpart = conditions.choose_counterpart(mine.first, (run.ranks[number] for number in theirs.ranks))
    theirs = Class(counterpart or theirs.first, theirs.ranks)
    return _explain_odd_side(odd.ranks, mine, theirs, parts, "never", odd), odd.ranks


def _split_at(odd: Odd, parts: Parts) -> tuple[Class | None, Class | None]:
    """The first class of the odd ranks, and the first one of others."""
    mine = next((part for part in parts if set(part.ranks) & set(odd.ranks)), None)
    theirs = next((part for part in parts if not set(part.ranks) & set(odd.ranks)), None)
    return mine, theirs


def _compare_groups(run: Run, classes: Parts) -> Comparisons:
    """The comparison of each group in which a rank of some classes waits at the number compared."""
    waiting = set(numbers_of(classes))
    comparisons: Comparisons = []
    for group in run.ledger.groups:
        answer = compare(group)
        pending = (call.number for n in waiting & group.ranks.keys() for call in group.ranks[n].pending)
        if not isinstance(answer, Agree) and answer.number in pending:
            comparisons.append((group, answer))
    return comparisons


def _explain_odd_side(
    odd: tuple[int, ...], mine: Class, theirs: Class, parts: Parts, ends: Ends, record: Odd | None = None
) -> Subset | Mismatch:
    """What the source says of a difference whose odd side is known: whether a call was left out, or another one was made in its
    place. `mine` are odd ranks, `theirs` others, each with the call in which they wait."""
    who, called = ranks(odd), record.call.name if record is not None else name_call(mine)
    same_side = tuple(part for part in parts if set(part.ranks) & set(odd))
    others = tuple(part for part in parts if part not in same_side)
    # Where others wait at the line of the odd ranks, what is around it explains nothing.
    if set(mine.ranks) <= set(odd):
        if conditions.in_other_arm(mine.first, theirs.first):
            reason = f"the call of {who} is in the other branch of a condition"
            return Mismatch(parts=parts, reason=reason, ends=ends)
        if (event := conditions.find_occasional(mine.first, theirs.first)) is not None:
            test, frame = event
            reason = f"only {who} called {called}, in {frame.function} under `{test}`"
            return Subset(parts=parts, reason=reason, others=others, asked=test, ends=ends)
    if record is not None and not record.skipped and _has_passed(mine, record):
        reason = f"only {who} called {called}{_describe_site(record, mine, theirs)}"
        return Subset(parts=parts, reason=reason, others=others, ends=ends)
    passed = record is not None and is_ahead(mine.first, theirs.first)
    condition = conditions.find_own_condition(mine.first, [theirs.first])
    if record is not None and (record.skipped or passed):
        instead = (
            f", but {called} ({conditions.describe_place(condition, mine.first)})" if condition is not None else ""
        )
        earlier = ", or one before it" if record.perhaps_earlier else ""
        reason = f"{who} did not call {_name_awaited_call(theirs)}{instead or earlier}"
        return Subset(parts=parts, reason=reason, others=same_side, perhaps_later=not passed, ends=ends)
    if condition is not None:
        reason = f"only {who} called {called} ({conditions.describe_place(condition, mine.first)})"
        return Subset(parts=parts, reason=reason, others=others, ends=ends)
    by_past = record is not None and record.by_past
    reason = (
        f"before, {name_call(theirs)} followed the same calls"
        if by_past
        else f"{do(odd, 'differs', 'differ')} from all others"
    )
    return Mismatch(parts=parts, reason=reason, ends=ends)


def _describe_site(record: Odd, mine: Class, theirs: Class) -> str:
    """The condition around a call of the odd ranks if they now wait at its line; else its line, if that is known, and its number:
    they wait in a later one."""
    site, at = record.call.site, mine.first.frame
    if site is not None and at is not None and (site.path, site.line) == (at.file, at.line):
        condition = conditions.find_own_condition(mine.first, [theirs.first])
        if condition is not None:
            return f" ({conditions.describe_place(condition, mine.first)})"
    where = f" at {site.file}:{site.line}" if site is not None else ""
    return f"{where} (call number {record.number})"


def _has_passed(part: Class, record: Odd) -> bool:
    """Whether ranks have come out of the odd call, and wait in a later one."""
    wait = part.first.wait
    number = (wait.number or wait.operation.seq) if wait is not None else None
    return number is not None and 0 < record.number < number


def _name_awaited_call(part: Class, *, of_group: bool = True) -> str:
    group = part.first.wait.operation.of_group if of_group and part.first.wait is not None else ""
    return f"the {name_call(part)}{group} that {do(part.ranks, 'is', 'are')} waiting in"


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


def classify_same_call(run: Run, classes: Iterable[Class]) -> tuple[Hold, tuple[int, ...]]:
    """(why all ranks of a group wait in one call, which ranks to blame)."""
    classes = tuple(classes)
    if all(alike.first.spins for alike in classes):
        return Spinning(), ()
    if all(alike.first.wait is not None and alike.first.wait.kind == "store" for alike in classes):
        return InStore(), ranks_of(classes)  # not for each other, but for whoever should set the key
    return (
        compare_arguments(classes, run.ledger, alone=True)
        or _blame_by_record(run, _split_by_number(run, classes))
        or _find_second_threads(classes)
        or _compare_places(classes)
        or (SameCall(), ())
    )


def _split_by_number(run: Run, classes: Iterable[Class]) -> Parts:
    """The ranks by the number of their call in the record: at one line of the program, they may be in different ones."""
    by_number: dict[Hashable, list[int]] = {}
    for alike in classes:
        group = alike.first.wait.operation.group if alike.first.wait is not None else None
        for rank in alike.ranks:
            by_number.setdefault(run.ledger.pending_number(group, rank), []).append(rank)
    return tuple(Class(run.ranks[ranks[0]], tuple(ranks)) for ranks in by_number.values())


def _compare_places(classes: Iterable[Class]) -> tuple[Mismatch, tuple[int, ...]] | None:
    """Calls of one operation at different lines: of different models, or of groups that could not be read. None if all are at
    one line, and for a call outside of the process groups: a process counts the ranks in it, from whatever line they came."""
    classes = [alike for alike in classes if alike.first.wait is None or alike.first.wait.counter is None]
    parts = merge_classes(classes, lambda rank: rank.where)
    places = [f"{ranks(part.ranks)} at {at.file}:{at.line}" for part in parts if (at := part.first.where) is not None]
    if len(parts) < 2 or len(places) < len(parts):
        return None
    # Two lines may make one call, so this is no proof.
    reason = f"at different lines: {', '.join(places)}"
    return Mismatch(parts=parts, reason=reason, ends="unknown"), ranks_of(parts)


def _find_second_threads(classes: Iterable[Class]) -> tuple[Threads, tuple[int, ...]] | None:
    calls = [
        (alike, thread.name or "another thread", wait.operation.op)
        for alike in classes
        if alike.first.process is not None and not alike.first.moving
        for thread, wait in operations.find_calls_beside(alike.first.process, alike.first.thread, alike.first.wait)
    ]
    if not calls:
        return None
    # That their order differs is inferred, not observed: two slow calls look the same for a while.
    return Threads(calls=tuple(calls), ends="unknown"), tuple(sorted({n for alike, _, _ in calls for n in alike.ranks}))


def compare_arguments(
    classes: Iterable[Class], ledger: Ledger, *, alone: bool = False
) -> tuple[Roots | Tensors, tuple[int, ...]] | None:
    """The first call with different roots, or else with different tensors; None for none. At one line, ranks may be in different
    ones of a series of calls, each with its own root: the `ledger` numbers them. `alone`: whether no rank is elsewhere. Only
    then those that no record numbers are taken to be in one call."""
    by_point: dict[Hashable, list[Class]] = {}
    for alike in classes:
        if alike.first.wait is not None and alike.first.wait.kind == "collective" and not alike.first.moving:
            by_point.setdefault(alike.first.wait.point, []).append(alike)
    roots = (_compare_roots(alike, ledger, alone) for alike in by_point.values())
    tensors = map(_compare_tensors, by_point.values())
    return next((blamed for blamed in (*roots, *tensors) if blamed is not None), None)


def _compare_roots(classes: list[Class], ledger: Ledger, alone: bool) -> tuple[Roots, tuple[int, ...]] | None:
    by_number: dict[int | None, dict[int, Rank]] = {}
    for alike in classes:
        group = alike.first.wait.operation.group if alike.first.wait is not None else None
        for rank in alike.ranks:
            number = ledger.pending_number(group, rank)
            if alone or number is not None:
                by_number.setdefault(number, {})[rank] = alike.first
    unread = by_number.get(None, {})
    if len(by_number) == 2 and 0 < len(unread) < sum(map(len, by_number.values())) - len(unread):
        del by_number[None]  # most ranks are in one call, by the record: so are those of which it could not be read
        next(iter(by_number.values())).update(unread)
    for number, inside in sorted(by_number.items(), key=lambda item: (item[0] is None, item[0] or 0)):
        following = by_number.get(number + 1, {}) if number is not None else {}
        further = {n: rank for n, rank in following.items() if all(_is_further(rank, each) for each in inside.values())}
        waits = {n: rank.wait for n, rank in {**inside, **further}.items() if rank.wait is not None}
        values = compare_values({n: str(wait.root) for n, wait in waits.items() if wait.root is not None})
        if values.differs:
            # The ranks that have come out of the call had a root, too. Without it, a tie singles out nobody.
            known = alone and len(waits) == sum(map(len, by_number.values()))
            refuted = _refuted_by_root({n: wait for n, wait in waits.items() if n in inside})
            return Roots(values=values), refuted or (values.odd if known or values.has_majority else ())
    return None


def _is_further(rank: Rank, other: Rank) -> bool:
    """Whether a rank is at a later line of torch's function that makes several calls, all with one root: if its call is the one
    after that of the other rank, it has made that, too (broadcast_object_list sends a size first)."""
    mine, theirs = (
        [each.thread.frames[at].line for at in reading(each.thread).c10d[1:]] if each.thread is not None else []
        for each in (rank, other)
    )
    return len(mine) == len(theirs) and mine > theirs


def _refuted_by_root(waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """The ranks that name a root which has come out of their call, or never made it, although another rank still waits to be the
    root: one that receives from all can't have. `waits`: of each rank in the call."""
    if not all(wait.operation.op in call_names.RECEIVES_FROM_ALL for wait in waits.values()):
        return ()
    refuted = [rank for rank, wait in waits.items() if wait.root_rank is not None and wait.root_rank not in waits]
    return tuple(sorted(refuted)) if len(refuted) < len(waits) else ()


def _compare_tensors(classes: list[Class]) -> tuple[Tensors, tuple[int, ...]] | None:
    by_call: dict[tuple[tuple[int, ...], int | None], dict[int, str]] = {}
    for alike in classes:
        if (passed := alike.first.passed) is not None:
            by_call.setdefault((passed.lines, passed.number), {}).update(dict.fromkeys(alike.ranks, passed.tensor))
    for shown in by_call.values():
        values = compare_values({rank: describe_amount(tensor) for rank, tensor in shown.items()})
        if values.differs:
            return Tensors(values=values, shown=shown), values.odd
    return None
