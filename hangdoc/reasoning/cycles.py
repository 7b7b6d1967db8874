"""Kinds of cycles: ranks that are in different calls and each wait for another of them.

The kind is the first of these that fits: a lock that a rank holds while it waits; a rendezvous that others have passed; a loop
that a rank has left and others are still in; one call with different roots or tensors; sends and receives; the collectives of
two groups in opposite order; a call that only some ranks make; otherwise different calls at one point.
"""

from collections.abc import Hashable, Iterable, Sequence

from msgspec.structs import replace

from hangdoc.phrases import do, ranks
from hangdoc.reasoning import point_to_point, points
from hangdoc.reasoning.causes import amounts, beginnings
from hangdoc.reasoning.kinds import Apart, GroupOrder, HoldsLock, LeftLoop, Mismatch, Subset
from hangdoc.reasoning.majority import off_the_majority
from hangdoc.reasoning.model import Class, Rank, Run, merged, numbers_of, ranks_of
from hangdoc.reasoning.point_to_point import Found, Parts
from hangdoc.reasoning.ranks import conditions, in_source, torch_names
from hangdoc.reasoning.ranks.counters import frame_of, loop_view
from hangdoc.reasoning.ranks.holds import AtFileLock, Ends, InStore
from hangdoc.reasoning.ranks.place import Left, is_ahead, left_loops
from hangdoc.reasoning.ranks.reading import reading
from hangdoc.reasoning.waits import Waits, is_p2p, lock_holders, peer_of
from hangdoc.snapshot import Loop


def kind_of(run: Run, waits: Waits, classes: Parts) -> Found:
    """Which kind of cycle some classes form."""
    if (locked := _holds_lock(run, classes)) is not None:
        return locked
    if any(one.first.in_rendezvous for one in classes):
        return Apart(parts=_parts(classes)), ranks_of(classes)
    left = left_loop_among(run, classes, classes, waits)
    if left is None and (arguments := points.different_arguments(classes, complete=False)) is not None:
        return arguments
    if left is not None and (left.differences or left.begins_differ or not _only_some_stay(left)):
        return left, left.short.ranks
    if all(is_p2p(one.first) for one in classes):
        return point_to_point.among_themselves(run, classes)
    if (mixed := point_to_point.among_others(run, classes, _parts(classes))) is not None:
        return mixed
    parts = _parts(classes)
    return _in_store(parts) or _by_program(_core(parts, waits))


def _in_store(parts: Parts) -> Found | None:
    """Ranks that wait for a key in the store, if all others wait in calls that those ranks have not reached yet."""
    stuck = [part for part in parts if part.first.wait is not None and part.first.wait.kind == "store"]
    others = [part for part in parts if part not in stuck]
    ahead = any(is_ahead(one.first, other.first) for one in stuck for other in others)
    return (InStore(), ranks_of(stuck)) if stuck and others and not ahead else None


def _holds_lock(run: Run, classes: Parts) -> Found | None:
    """Ranks of a cycle that hold the lock on a file for which another one waits."""
    for one in classes:
        hold, held_by = one.first.hold, lock_holders(run, one.first)
        if isinstance(hold, AtFileLock) and held_by:
            holder = Class(run.ranks[held_by[0]], tuple(held_by))
            return HoldsLock(holder=holder, needs=one, path=hold.path, ends=hold.ends), holder.ranks
    return None


def _parts(classes: Iterable[Class]) -> Parts:
    """One class for each call in which ranks of a cycle wait, the smallest first."""
    return merged(classes, _call)


def _call(rank: Rank) -> Hashable:
    wait = rank.wait
    if wait is None:
        return None
    return (wait.operation.op, wait.operation.peer) if wait.kind == "p2p" else wait.point


def _core(parts: Parts, waits: Waits) -> Parts:
    """The parts of a cycle that wait for each other directly: without the others there would still be a cycle. All parts, where
    no two of them do."""
    core = tuple(part for part in parts if any(_wait_for_each_other(waits, part, other) for other in parts))
    return core or parts


def _wait_for_each_other(waits: Waits, one: Class, other: Class) -> bool:
    both = not (waits.of(one).isdisjoint(other.ranks) or waits.of(other).isdisjoint(one.ranks))
    return both and one is not other


# --- a loop left early -------------------------------------------------------------------------------------------------


def left_loop_among(run: Run, short: Sequence[Class], waiting: Sequence[Class], waits: Waits) -> LeftLoop | None:
    """The first pair of classes of which one has left a loop in which the other waits for it."""
    for behind in sorted(waiting, key=_largest_first):
        for ahead in sorted(short, key=_largest_first):
            # A receive names the rank that should have sent; a request, whose peer is unknown, may need all of them.
            named = is_p2p(behind.first) and peer_of(behind.first) is not None
            awaited = sorted(waits.of(behind).intersection(ahead.ranks))
            if ahead is behind or named or not awaited:
                continue
            first = run.ranks[awaited[0]]
            if (left := _uneven(first, behind.first)) is None:
                continue
            loop = left.loop
            out, within = _counted_by(first, loop), _counted_by(behind.first, loop)
            alike = [one for one in short if one is not behind and _same_call(one.first, first)]
            inside = [one for one in waiting if one not in alike and _same_call(one.first, behind.first)]
            needed = frozenset[int]().union(*map(waits.of, (behind, *inside)))
            return LeftLoop(
                short=Class(out, tuple(one for one in ranks_of(alike) if one in needed)),
                inside=Class(within, ranks_of(inside)),
                loop=loop,
                skippable=left.skippable and not conditions.early_exits(loop),
                differences=tuple(amounts.differences(out, within)),
                begins_differ=beginnings.differ(loop, out, within),
            )
    return None


def _uneven(ahead: Rank, behind: Rank) -> Left | None:
    """The outermost of the loops that `ahead` has left and `behind` is inside, in which `ahead` had fewer iterations or which the
    two began at different values; None if there is none. Both may have had as many epochs, and different numbers of batches in
    the last one."""
    last = False
    for left in left_loops(ahead, behind):
        out, within = _counted_by(ahead, left.loop), _counted_by(behind, left.loop)
        if in_source.waits_for_each(left.loop, behind.frame):
            return None
        if beginnings.differ(left.loop, out, within) or not _did_as_many_rounds(out, within, strictly=last):
            return left
        last = _is_in_last(out, within)
        if not last and not _inner_had_none(out, within, left.loop):
            return None
    return None


def _is_in_last(short: Rank, waiting: Rank) -> bool:
    """Whether the rank inside a loop is in the last iteration that the other one has completed."""
    a, b = short.loop, waiting.loop
    return a is not None and b is not None and None not in (a.done, b.done) and a.done == (b.done or 0) + 1


def _inner_had_none(short: Rank, waiting: Rank, loop: Loop) -> bool:
    """Whether the rank outside a loop has completed iterations that the other one has not begun, and each of them calls what that
    one waits in: the loops inside had no iteration there."""
    a, b, frame = short.loop, waiting.loop, frame_of(loop, waiting)
    if a is None or b is None or a.done is None or b.done is None or frame is None:
        return False
    return a.done > b.done + 1 and not any(map(conditions.changes, frame.conditions))


def _largest_first(one: Class) -> tuple[int, tuple[int, ...]]:
    return -len(one.ranks), one.ranks


def _counted_by(rank: Rank, loop: Loop) -> Rank:
    """The rank with the counter of the loop that was left. One that has left its function too has none."""
    if rank.process is None:
        return rank
    frame = frame_of(loop, rank)
    key = (frame.file, frame.function, loop.line) if frame is not None else None
    return replace(rank, loop=loop_view(rank.process, rank.program, key))


def _only_some_stay(left: LeftLoop) -> bool:
    """Whether only some ranks make the call inside the loop, or the one after it: it is under a condition on the rank; or no
    statement ends the loop early, and most have left it or the call is under a condition on the data."""
    inside, short = left.inside.first, left.short.first
    few = len(left.inside.ranks) < len(left.short.ranks)
    ended = not conditions.early_exits(left.loop) and (few or conditions.on_data(left.loop, inside, short))
    return ended or left.skippable or conditions.singled_out(inside, short)


def _same_call(one: Rank, other: Rank) -> bool:
    """Whether two ranks are at the same call; of its group less may be known on one of them."""
    ops = [rank.wait.operation.op if rank.wait is not None else None for rank in (one, other)]
    return ops[0] == ops[1] and (one.state, one.where) == (other.state, other.where)


def _did_as_many_rounds(short: Rank, waiting: Rank, *, strictly: bool) -> bool:
    """Whether the rank outside did not leave early: it has done more iterations, but calls fewer collectives in each; or both had
    the same number, and it completed them, so a collective was skipped before. Its last iteration counts as one more only
    `strictly`."""
    a, b = short.loop, waiting.loop
    if a is None or b is None or a.done is None:
        return False
    return (b.done is not None and a.done > b.done + (not strictly)) or a.done == a.total == b.total


# --- collectives -------------------------------------------------------------------------------------------------------


def _by_program(parts: Parts) -> Found:
    """The kind of a cycle of collectives, by the positions of the ranks in the program. It is one list of alternatives, of which
    the first that fits is the kind."""
    everyone = ranks_of(parts)
    sure = all(part.first.wait is not None and part.first.wait.sure for part in parts)
    ends: Ends = "never" if sure else "unknown"  # an operation that was inferred may be another one
    if len(parts) > 2 and _opposite_order(parts):
        return GroupOrder(parts=parts), everyone
    behind = _behind(parts)
    earliest = [index for index, others in enumerate(behind) if not others]
    for mine in parts:
        others = [part for part in parts if part is not mine]
        if all(conditions.singled_out(mine.first, theirs.first) for theirs in others):
            # The others are in the other branch of that condition, or they are past it.
            if any(conditions.in_other_arm(mine.first, theirs.first) for theirs in others):
                reason = f"the call of {ranks(mine.ranks)} is under a condition on the rank"
                return Mismatch(parts=parts, reason=reason, ends=ends), mine.ranks
            reason = f"only {ranks(mine.ranks)} called {_call_in_words(mine)}, under a condition on the rank"
            return Subset(parts=parts, reason=reason, ends=ends), mine.ranks
    beside_each_other = len(earliest) == len(parts)
    if beside_each_other and _opposite_order(parts):
        return GroupOrder(parts=parts, ends=ends), everyone
    if len(earliest) == 1 and all(earliest[0] in others for others in behind if others):
        first = parts[earliest[0]]
        subset, blamed = _went_past(first, parts)
        return replace(subset, ends=ends), blamed
    smallest = parts[0]
    if beside_each_other and all(len(part.ranks) > len(smallest.ranks) for part in parts[1:]):
        reason = f"{do(smallest.ranks, 'differs', 'differ')} from all others"
        return Mismatch(parts=parts, reason=reason, ends=ends), smallest.ranks
    if (found := off_the_majority(parts)) is not None:
        return Mismatch(parts=parts, reason=found.reason, ends=ends), found.few.ranks
    return Mismatch(parts=parts, reason="", ends=ends), everyone


def _behind(parts: Parts) -> list[set[int]]:
    """For each part, the positions of those that it is ahead of, directly or indirectly."""
    behind = [
        {n for n, other in enumerate(parts) if other is not part and is_ahead(part.first, other.first)}
        for part in parts
    ]
    for _ in parts:
        behind = [{*direct, *(further for n in direct for further in behind[n])} for direct in behind]
    return behind


def _went_past(behind: Class, parts: Parts) -> tuple[Subset, tuple[int, ...]]:
    """The kind, and the ranks to blame: some ranks wait in a call, and all others are further in the program."""
    ahead = [part for part in parts if part is not behind and _belongs(part, behind)]
    only = f"only {ranks(behind.ranks)} called {_call_in_words(behind)}"
    rest = ranks_of(ahead)
    rooted = _has_root(behind.first)
    if rooted and len(ahead) > 1:
        # A rank may return from a gather or a broadcast before the others: only the rank that is furthest did not call it.
        furthest = [part for part in ahead if not any(is_ahead(other.first, part.first) for other in ahead)]
        rest = furthest[0].ranks if len(furthest) == 1 else rest
    event = conditions.now_and_then(behind.first, ahead[0].first)
    if event is not None and len(behind.ranks) <= len(rest):
        test, frame = event
        reason = f"{only}, in {frame.function} under `{test}`"
        return Subset(parts=parts, reason=reason, asked=test), behind.ranks
    if len(rest) > len(behind.ranks) and not rooted:
        # Fewer ranks made the call than skipped it, so the call itself is the mistake.
        return Subset(parts=parts, reason=f"{only}; {do(rest, 'is', 'are')} past it"), behind.ranks
    called = f"the {_name(behind)} that {do(behind.ranks, 'is', 'are')} waiting in"
    return Subset(parts=parts, reason=f"{ranks(rest)} did not call {called}"), rest


def _belongs(part: Class, behind: Class) -> bool:
    """Whether a rank of a part is a member of the group in whose collective others wait."""
    members = behind.first.wait.of_group[1] if behind.first.wait is not None else None
    return members is None or not set(members).isdisjoint(part.ranks)


def _has_root(rank: Rank) -> bool:
    """Whether other ranks may come out of a rank's collective before all have called it. Not where one without a root comes first
    in it: `gather_object` gathers the sizes on all ranks."""
    if rank.wait is None or rank.thread is None or rank.wait.operation.op not in torch_names.ROOTED:
        return False
    inner = {torch_names.plain(rank.thread.frames[at].function) for at in reading(rank.thread).c10d}
    return not inner & (torch_names.COLLECTIVES - torch_names.ROOTED)


def _name(part: Class) -> str:
    op = part.first.wait.operation.op if part.first.wait is not None else "wait"
    return "collective" if op == "wait" else op


def _call_in_words(part: Class) -> str:
    """The operation; one that is not known, by its line."""
    at = part.first.where
    if (name := _name(part)) != "collective":
        return name
    return f"a collective at {at.file}:{at.line}" if at is not None else "a collective"


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
