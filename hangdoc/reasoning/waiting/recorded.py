"""What the records of the ranks in a cycle show: who called something else, or passed other amounts of data."""

from hangdoc.phrases import do, ranks
from hangdoc.reasoning.ledger.compare import Comparison, Differs, SizesDiffer, compare
from hangdoc.reasoning.ledger.expected import Odd, find_odd
from hangdoc.reasoning.model.agreement import agreement
from hangdoc.reasoning.model.kinds import Mismatch, Subset, Tensors
from hangdoc.reasoning.model.ledger import GroupCalls, amounts
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions
from hangdoc.reasoning.ranks.place import is_ahead
from hangdoc.reasoning.waiting.point_to_point import Found, Parts


def find_tensors(run: Run, classes: Parts) -> Found | None:
    """The call in which ranks of some classes wait, if others made it at the same line with other amounts of data. They may have
    come out of it: Gloo returns at once for an empty tensor. None if there is none."""
    for _, answer in _answers(run, classes):
        if isinstance(answer, SizesDiffer) and len({side.call.sites for side in answer.sides if side.call}) == 1:
            known = [(n, side.call) for side in answer.sides if side.call is not None for n in side.ranks]
            shown = {n: call.tensors[0] for n, call in known if call.tensors}
            values = agreement({n: ", ".join(amounts(call)) for n, call in known})
            return Tensors(values=values, shown=shown, op=known[0][1].op), values.odd
    return None


def find_odd_call(run: Run, parts: Parts) -> Found | None:
    """The kind of a cycle whose ranks made different calls of one number, by their records; None if no record shows that, or
    nothing singles out a side."""
    for group, answer in _answers(run, parts):
        odd = find_odd(group, answer) if isinstance(answer, Differs | SizesDiffer) else None
        known = {rank for rank, calls in group.ranks.items() if calls.source == "recorder"}
        if odd is not None and known.issuperset(numbers_of(parts)):
            mine = next((part for part in parts if set(part.ranks) & set(odd.ranks)), None)
            theirs = next((part for part in parts if not set(part.ranks) & set(odd.ranks)), None)
            if mine is not None and theirs is not None:
                return _explained(odd, mine, theirs, parts), odd.ranks
    return None


def _answers(run: Run, classes: Parts) -> list[tuple[GroupCalls, Comparison]]:
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


def _explained(odd: Odd, mine: Class, theirs: Class, parts: Parts) -> Subset | Mismatch:
    """The records say who is odd; the source says whether a call was left out, or another one was made in its place."""
    who, called = ranks(odd.ranks), odd.call.op
    if conditions.in_other_arm(mine.first, theirs.first):
        return Mismatch(parts=parts, reason=f"the call of {who} is in the other branch of a condition")
    waits_in = theirs.first.wait.operation.op if theirs.first.wait is not None else odd.others_call.op
    others = f"the {waits_in} that {do(theirs.ranks, 'is', 'are')} waiting in"
    if (event := conditions.now_and_then(mine.first, theirs.first)) is not None:
        test, frame = event
        return Subset(parts=parts, reason=f"only {who} called {called}, in {frame.function} under `{test}`", asked=test)
    if odd.skipped or is_ahead(mine.first, theirs.first):
        return Subset(parts=parts, reason=f"{who} did not call {others}")
    if (condition := conditions.its_own(mine.first, [theirs.first])) is not None:
        return Subset(parts=parts, reason=f"only {who} called {called}, under the condition `{condition}`")
    if odd.by_past:
        return Mismatch(parts=parts, reason=f"before, {odd.others_call.op} followed the same calls")
    return Mismatch(parts=parts, reason=f"{do(odd.ranks, 'differs', 'differ')} from all others")
