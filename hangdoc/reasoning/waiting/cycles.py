"""Kinds of cycles: ranks that are in different calls and each wait for another of them.

The kind is the first of these that fits: a lock that a rank holds, or a reply that it owes, while it waits; a rendezvous that
others have passed; a loop that a rank has left and others are still in; one call with different roots or tensors; sends and
receives; the collectives of two groups in opposite order; a call that only some ranks make; otherwise different calls at one
point.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from hangdoc.program import around, early_exits
from hangdoc.reasoning.model.holds import AtFileLock, AtSharedLock, Ends, InStore, OnNetwork
from hangdoc.reasoning.model.kinds import Apart, HoldsLock, LeftLoop, OutsideBarrier, OwesReply, Subset
from hangdoc.reasoning.model.rank import Class, Rank, merge_classes, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.model.waits import Waits
from hangdoc.reasoning.ranks import amounts, conditions, in_source
from hangdoc.reasoning.ranks.counters import begins_differ, ends_earlier, frame_of, has_done_all_rounds, with_counter_of
from hangdoc.reasoning.ranks.iterators import ended_with_its_data
from hangdoc.reasoning.ranks.place import Left, calls_in_each_round, ends_only_by_itself, is_ahead, left_loops
from hangdoc.reasoning.waiting import different_calls, point_to_point
from hangdoc.reasoning.waiting.point_to_point import KindWithCulprits, Parts
from hangdoc.reasoning.waiting.waits import find_enders, is_p2p, peer_of
from hangdoc.snapshot import Loop
from hangdoc.torch_facts import call_names


def classify_cycle(run: Run, waits: Waits, classes: Parts) -> KindWithCulprits:
    """Which kind of cycle some classes form."""
    if (beyond := _find_ender(run, classes)) is not None:
        return beyond
    if any(part.first.in_rendezvous for part in classes):
        return Apart(parts=_merge_by_call(classes)), ranks_of(classes)
    if (sizes := different_calls.find_tensors(run, classes)) is not None:
        return sizes
    # A rank without a stack may be on either side of a loop.
    placed = all(part.first.thread is not None for part in classes)
    left = find_left_loop(run, classes, classes, waits) if placed else None
    if left is None and (arguments := different_calls.compare_arguments(classes, run.ledger)) is not None:
        return arguments
    if left is not None and (
        left.differences or left.begins_differ or left.ends_differ or not _only_some_stay(run, left)
    ):
        return left, left.short.ranks
    if (unmatched := point_to_point.find_unmatched(run, classes)) is not None:
        return unmatched
    parts = _merge_by_call(classes)
    return _find_store_wait(parts) or different_calls.compare_calls(run, _find_core(parts, waits))


def _find_store_wait(parts: Parts) -> KindWithCulprits | None:
    """Ranks that wait for a key in the store, if all others wait in calls that those ranks have not reached yet."""
    stuck = [part for part in parts if part.first.wait is not None and part.first.wait.kind == "store"]
    others = [part for part in parts if part not in stuck]
    ahead = any(is_ahead(part.first, other.first) for part in stuck for other in others)
    # Without their stacks, most ranks in the store may be those that have come, to a call that the others do not make.
    unclear = len(ranks_of(stuck)) > len(ranks_of(others)) and all(part.first.is_unread for part in stuck)
    return (InStore(), ranks_of(stuck)) if stuck and others and not ahead and not unclear else None


def _find_ender(run: Run, classes: Parts) -> KindWithCulprits | None:
    """Ranks of a cycle that hold the lock on a file for which another one waits, have to reply to it, or are the only one not at
    its barrier. Which of the two is wrong where one asks the other is not known."""
    for alike in classes:
        hold, enders = alike.first.hold, find_enders(run, alike.first)
        if not enders:
            continue
        ender = Class(run.ranks[enders[0]], tuple(enders))
        if isinstance(hold, AtFileLock):
            return HoldsLock(holder=ender, needs=alike, path=hold.path, ends=hold.ends), ender.ranks
        if isinstance(hold, AtSharedLock) and hold.of == "barrier":
            return OutsideBarrier(absent=ender, inside=alike, ends=hold.ends), ender.ranks
        if isinstance(hold, OnNetwork) and len(alike.ranks) == 1:
            wait = ender.first.wait
            ends: Ends = "never" if wait is not None and wait.sure else "unknown"
            return OwesReply(owes=ender, needs=alike, ends=ends), ranks_of((ender, alike))
    return None


def _merge_by_call(classes: Iterable[Class]) -> Parts:
    """One class for each call in which ranks of a cycle wait, the smallest first."""
    return merge_classes(classes, _call_key)


def _call_key(rank: Rank) -> Hashable:
    wait = rank.wait
    if wait is None:
        return None
    return (wait.operation.op, wait.operation.peer) if wait.kind == "p2p" else wait.point


def _find_core(parts: Parts, waits: Waits) -> Parts:
    """The parts of a cycle that wait for each other directly: without the others there would still be a cycle. All parts, where
    no two of them do."""
    core = tuple(part for part in parts if any(_wait_for_each_other(waits, part, other) for other in parts))
    return core or parts


def _wait_for_each_other(waits: Waits, part: Class, other: Class) -> bool:
    both = not (waits.awaited_by(part).isdisjoint(other.ranks) or waits.awaited_by(other).isdisjoint(part.ranks))
    return both and part is not other


# --- a loop left early -------------------------------------------------------------------------------------------------


def find_left_loop(
    run: Run, short: Sequence[Class], waiting: Sequence[Class], waits: Waits, ends: Ends = "never"
) -> LeftLoop | None:
    """The first pair of classes of which one has left a loop in which the other waits for it. `ends`: of what that one waits for,
    for as long as a loop around goes on."""
    for outside, behind in _list_pairs(run, short, waiting, waits):
        if (uneven := _find_uneven_loop(run, outside, behind.first)) is None:
            continue
        left, out, within = uneven
        # A receive names the rank that should have sent; a request, whose peer is unknown, may need all of them.
        if _names_peer(behind.first) and not _has_begun_fewer_rounds(out, within):
            continue
        left_it, inside = _gather_sides(short, waiting, waits, outside, behind)
        return LeftLoop(
            short=Class(out, left_it),
            inside=Class(within, inside),
            loop=left.loop,
            skippable=left.skippable and not early_exits(left.loop),
            differences=tuple(amounts.compare_amounts(out, within)),
            begins_differ=begins_differ(left.loop, out, within),
            ends_differ=ends_earlier(left.loop, out, within),
            ends=ends if _goes_on(outside, behind.first) else "never",
        )
    return None


def find_skipped_call(
    run: Run, short: Sequence[Class], waiting: Sequence[Class], waits: Waits, ends: Ends
) -> Subset | None:
    """The collective in which some ranks wait in a loop, if those that they wait for have left the loop, are in no call, and left
    out that one in some round: then the wait never ends if a record shows that, and no loop around it goes on. Else it ends as
    what those wait for (`ends`)."""
    for outside, behind in _list_pairs(run, short, waiting, waits):
        if not _shows_who_has_come(run, behind.first):
            continue
        loops = [left.loop for left in left_loops(outside, behind.first)]
        left_out = (loop for loop in loops if different_calls.has_left_out(run, outside, behind.first, loop))
        recorded = next(left_out, None)
        loop = recorded or _find_loop_done(loops, outside, behind.first)
        if loop is not None:
            left_it, inside = _gather_sides(short, waiting, waits, outside, behind)
            sides = Class(outside, left_it), Class(behind.first, inside)
            comes_again = recorded is None or _goes_on(outside, behind.first)
            return different_calls.describe_skip(*sides, loop, ends if comes_again else "never")
    return None


def _goes_on(outside: Rank, inside: Rank) -> bool:
    """Whether two ranks are in one loop that may have another round for the one outside of a loop in it: it makes the same calls
    in that, which meet those that the other one still has to make."""
    shared = (each for frame in outside.program for each in around(frame))
    return any(
        within is not None and each in around(within) and not _is_in_last_round(with_counter_of(outside, each))
        for each in shared
        for within in (frame_of(each, inside),)
    )


def _shows_who_has_come(run: Run, rank: Rank) -> bool:
    """Whether no rank comes out of the call of another one before that has made it, or a record says who made it."""
    wait = rank.wait
    if wait is None or wait.kind != "collective":
        return False
    recorded = any(calls.pending and calls.source == "recorder" for _, calls in run.ledger.of_rank(rank.rank))
    return recorded or wait.operation.op not in call_names.ROOTED


def _find_loop_done(loops: Sequence[Loop], outside: Rank, inside: Rank) -> Loop | None:
    """Of loops that a rank has left after all rounds of each, the outermost in whose last round the other one is not yet, or else
    the innermost. None if it may not have done all rounds."""
    sides = [(with_counter_of(outside, loop), with_counter_of(inside, loop)) for loop in loops]
    done = all(has_done_all_rounds(*each) for each in sides)
    if not done or any(_may_have_left_early(loop, outside, inside) for loop in loops):
        return None
    longer = (loop for loop, (_, within) in zip(loops, sides, strict=True) if not _is_in_last_round(within))
    return next(longer, loops[-1] if loops else None)


def _may_have_left_early(loop: Loop, outside: Rank, inside: Rank) -> bool:
    """Whether a statement may have ended a loop on the rank outside in the round in which the other one is, the last, or in an
    earlier round of a loop around it."""
    frame, within = frame_of(loop, outside), frame_of(loop, inside)
    if frame is None or within is None or ended_with_its_data(loop, frame):
        return False
    callers = inside.program[inside.program.index(within) + 1 :]
    loops_around = [each for each in around(within) if each.line < loop.line]
    loops_around += [each for caller in callers for each in around(caller)]
    views = (with_counter_of(inside, each).loop for each in loops_around)
    return _is_in_last_round(with_counter_of(inside, loop)) or any(view is None or view.done != 0 for view in views)


def _list_pairs(
    run: Run, short: Sequence[Class], waiting: Sequence[Class], waits: Waits
) -> Iterator[tuple[Rank, Class]]:
    """The ranks of some classes, each with a class that waits for it, the largest classes first. Not those that have made the
    call as often as who waits in it."""
    for behind in sorted(waiting, key=_largest_first):
        for ahead in sorted(short, key=_largest_first):
            awaited = sorted(waits.awaited_by(behind).intersection(ahead.ranks))
            if ahead is behind or not awaited:
                continue
            if not run.ledger.has_made_as_often(awaited[0], behind.first.rank):
                yield run.ranks[awaited[0]], behind


def _gather_sides(
    short: Sequence[Class], waiting: Sequence[Class], waits: Waits, outside: Rank, behind: Class
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the ranks that are needed and at the same call as one outside of a loop, those that wait as some inside it)."""
    left_it = [alike for alike in short if alike is not behind and _is_at_same_call(alike.first, outside)]
    inside = [alike for alike in waiting if alike not in left_it and _is_at_same_call(alike.first, behind.first)]
    needed = frozenset[int]().union(*map(waits.awaited_by, (behind, *inside)))
    return tuple(rank for rank in ranks_of(left_it) if rank in needed), ranks_of(inside)


def _find_uneven_loop(run: Run, ahead: Rank, behind: Rank) -> tuple[Left, Rank, Rank] | None:
    """The outermost of the loops that `ahead` has left and `behind` is inside of which `ahead` had fewer iterations, or which the
    two began at different values, and the two ranks with their counters of it; None for none. Where both had all epochs, the
    loop over the batches may be the uneven one."""
    unclear, first_pass = None, True
    for depth, left in enumerate(left_loops(ahead, behind)):
        if in_source.waits_for_each(left.loop, behind.frame):
            return unclear
        out, within = with_counter_of(ahead, left.loop), with_counter_of(behind, left.loop)
        fewer = _had_fewer_rounds(left, out, within, first_pass=first_pass)
        left_early = fewer and not different_calls.has_left_out(run, ahead, behind, left.loop)
        if left_early or begins_differ(left.loop, out, within):
            return left, out, within
        # A rank that has left the function has no counter there. It left the outermost loop early, unless that was ending.
        if not _is_counted(out, within) and (depth == 0 or unclear is not None):
            if not _is_in_last_round(within):
                return left, out, within
            unclear = unclear or (left, out, within)
        first_pass = first_pass and within.loop is not None and within.loop.done == 0
    return unclear


def _is_counted(outside: Rank, inside: Rank) -> bool:
    """Whether the rounds of the rank outside are known, and those of the other one too, as far as they go."""
    return outside.loop is not None and inside.loop is not None and outside.loop.done is not None


def _is_in_last_round(inside: Rank) -> bool:
    loop = inside.loop
    return loop is not None and loop.done is not None and loop.total == loop.done + 1


def _had_fewer_rounds(left: Left, outside: Rank, inside: Rank, *, first_pass: bool) -> bool:
    """Whether the rank outside left early. It did not, if it has done more iterations, but calls fewer collectives in each; or if
    both had the same number, and it completed them, so a collective was skipped before. After the `first_pass` of a loop, the
    iterations of both tell nothing by themselves: the passes before may have been uneven."""
    ended, going = outside.loop, inside.loop
    if ended is None or going is None or ended.done is None:
        return False
    if first_pass and going.done is not None and ended.done > going.done + 1:
        return False
    if ended.total is not None and going.total is not None and ended.total < going.total:
        return True
    if has_done_all_rounds(outside, inside):
        return False
    if first_pass:
        return True
    return not left.skippable or bool(amounts.compare_amounts(outside, inside))


def _largest_first(alike: Class) -> tuple[int, tuple[int, ...]]:
    return -len(alike.ranks), alike.ranks


def _only_some_stay(run: Run, left: LeftLoop) -> bool:
    """Whether only some ranks make the call inside the loop, or the one after it: it is under a condition on the rank; or no
    statement ends the loop early, and most have left it or the call is under a condition on the data. Most may have run out of
    data as well as a few."""
    inside, short = left.inside.first, left.short.first
    if _ended_before(short, inside):
        return False
    few = len(left.inside.ranks) < len(left.short.ranks) and not _may_have_less_data(run, left)
    ended = not early_exits(left.loop) and (few or conditions.on_data(left.loop, inside, short))
    return ended or left.skippable or conditions.singled_out(inside, short)


def _may_have_less_data(run: Run, left: LeftLoop) -> bool:
    """Whether a loop that makes a collective in each round can have ended on the ranks outside only with their data, and nothing
    shows that they had as many rounds as the ranks inside will have."""
    inside, short = left.inside.first, left.short.first
    needs_all = inside.wait is not None and inside.wait.kind == "collective"
    if not needs_all or _is_counted(short, inside) or amounts.has_as_many_batches(short, inside):
        return False
    return ends_only_by_itself(left.loop, short, inside) and calls_in_each_round(left.loop, inside, run.ledger)


def _is_at_same_call(rank: Rank, peer: Rank) -> bool:
    """Whether two ranks are at the same call; of its group less may be known on one of them."""
    mine, theirs = (each.wait.operation.op if each.wait is not None else None for each in (rank, peer))
    return mine == theirs and (rank.state, rank.where) == (peer.state, peer.where)


def _names_peer(rank: Rank) -> bool:
    return is_p2p(rank) and peer_of(rank) is not None


def _ended_before(outside: Rank, inside: Rank) -> bool:
    """Whether the rank inside has come to a round that the rank outside has not begun: the last common one is complete."""
    rounds = _count_rounds(outside, inside)
    return rounds is not None and rounds[0] == rounds[1]


def _has_begun_fewer_rounds(outside: Rank, inside: Rank) -> bool:
    """Whether the rank inside has come to a round that the rank outside has not begun. It may be some rounds on: it need not wait
    for each of its sends."""
    rounds = _count_rounds(outside, inside)
    return rounds is not None and rounds[0] <= rounds[1]


def _count_rounds(outside: Rank, inside: Rank) -> tuple[int, int] | None:
    """How many rounds of a loop each of two ranks has done; None where one is not known."""
    ended, going = (rank.loop.done if rank.loop is not None else None for rank in (outside, inside))
    return (ended, going) if ended is not None and going is not None else None
