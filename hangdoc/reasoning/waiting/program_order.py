"""Kinds of a cycle of collectives: by the ranks' positions in the program, and by the conditions around their calls."""

from msgspec.structs import replace

from hangdoc.phrases import do, ranks
from hangdoc.reasoning.evidence.reading import reading
from hangdoc.reasoning.model.holds import Ends
from hangdoc.reasoning.model.kinds import GroupOrder, Mismatch, Subset
from hangdoc.reasoning.model.rank import Class, Rank, numbers_of, ranks_of
from hangdoc.reasoning.ranks import conditions
from hangdoc.reasoning.ranks.place import is_ahead
from hangdoc.reasoning.waiting.majority import off_the_majority
from hangdoc.reasoning.waiting.point_to_point import Found, Parts
from hangdoc.torch_facts import torch_names


def kind_of(parts: Parts) -> Found:
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
    if beside_each_other and (one := _only_conditional(parts)) is not None:
        mine, test = one
        reason = f"only {ranks(mine.ranks)} called {_call_in_words(mine)}, under the condition `{test}`"
        return Subset(parts=parts, reason=reason, ends=ends), mine.ranks
    smallest = parts[0]
    if beside_each_other and all(len(part.ranks) > len(smallest.ranks) for part in parts[1:]):
        reason = f"{do(smallest.ranks, 'differs', 'differ')} from all others"
        return Mismatch(parts=parts, reason=reason, ends=ends), smallest.ranks
    if (found := off_the_majority(parts)) is not None:
        return Mismatch(parts=parts, reason=found.reason, ends=ends), found.few.ranks
    return Mismatch(parts=parts, reason="", ends=ends), everyone


def _only_conditional(parts: Parts) -> tuple[Class, str] | None:
    """The one part whose call is under a condition of its own, and the condition; None unless it is one only, and no larger than
    any other."""
    found = []
    for part in parts:
        others = [other.first for other in parts if other is not part]
        if (test := conditions.its_own(part.first, others)) is not None:
            found.append((part, test))
    smallest = min(len(part.ranks) for part in parts)
    return found[0] if len(found) == 1 and len(found[0][0].ranks) == smallest else None


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
    if rooted and len(rest) > 1:
        return Subset(parts=parts, reason=f"not all of {ranks(rest)} called {called}", some=True), rest
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
