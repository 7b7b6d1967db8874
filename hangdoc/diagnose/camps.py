"""The common picture of HD201, HD203 and HD205: ranks that wait for each other in different collectives.

What tells the three apart is how they came there: two groups' collectives in opposite order, a call that only some
ranks make, or different calls at the same point.
"""

from dataclasses import dataclass

from hangdoc.diagnose import conditions, facts, progress, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence


@dataclass(frozen=True)
class Case:
    """Ranks in a cycle of waiting, by what they wait in."""

    camps: tuple[tuple[Rank, ...], ...]
    """The smallest first."""
    culprits: tuple[Rank, ...]
    reason: str
    """Why these; empty where nothing singles them out."""
    story: str
    """`order` (two groups, opposite order), `subset` (only some ranks make the call), `mismatch`."""
    sure: bool
    """False where an operation is only concluded, or nobody tells its name."""

    @property
    def ranks(self) -> list[Rank]:
        """All of them."""
        return [rank for camp in self.camps for rank in camp]

    def waits(self) -> str:
        """Who waits in what, in one clause."""
        return "; ".join(
            f"{words.ranks(r.rank for r in camp)} {words.verb([r.rank for r in camp], 'waits', 'wait')} in "
            f"{words.operation(camp[0])}"
            for camp in reversed(self.camps)
        )

    def evidence(self, run: Run) -> list[Evidence]:
        """Their stacks, the conditions their calls stand under, and since when they are silent."""
        firsts = [camp[0] for camp in self.camps[:3]]
        under = [
            Evidence(rank=rank.rank, probe="source", text=text)
            for rank in firsts
            if (text := next(filter(None, (conditions.spoken(rank, o) for o in firsts if o is not rank)), None))
        ]
        return [*words.class_evidence(self.ranks), *under, *words.standstill(run)]


def case(run: Run) -> Case | None:
    """The picture, where a run shows it."""
    stuck = [r for r in run.waiting() if not r.moving and r.wait is not None and r.wait.kind in ("collective", "store")]
    in_cycle = [rank for rank in stuck if rank.rank in run.causes]
    by_point: dict[object, list[Rank]] = {}
    for rank in in_cycle:
        by_point.setdefault(rank.wait.point if rank.wait is not None else None, []).append(rank)
    if len(by_point) < 2:
        return None
    camps = tuple(tuple(camp) for camp in sorted(by_point.values(), key=lambda camp: (len(camp), camp[0].rank)))
    sure = all(rank.wait is not None and rank.wait.sure for rank in in_cycle)
    return Case(camps, *_story(camps), sure)


def roots(run: Run) -> list[words.Camps]:
    """For each rooted collective in which ranks wait with different roots, the roots and who names each."""
    by_point: dict[object, list[Rank]] = {}
    for rank in run.waiting():
        if rank.wait is not None and rank.wait.root is not None and not rank.moving:
            by_point.setdefault(rank.wait.point, []).append(rank)
    found = [words.by_value(ranks, {r.rank: str(r.wait.root) for r in ranks if r.wait}) for ranks in by_point.values()]
    return [camps for camps in found if len(camps) > 1]


def _story(camps: tuple[tuple[Rank, ...], ...]) -> tuple[tuple[Rank, ...], str, str]:
    """(ranks to blame, why these, which of the three stories)."""
    everyone = tuple(rank for camp in camps for rank in camp)
    if len(camps) > 2 and _opposite_order(camps):
        return everyone, "", "order"
    # Who is at the earliest point stands where the ranks parted.
    behind = _behind(camps)
    earliest = [index for index, others in enumerate(behind) if not others]
    for mine in camps:
        others = [camp for camp in camps if camp is not mine]
        if all(conditions.singled_out(mine[0], theirs[0]) for theirs in others):
            reason = f"the call of {words.ranks(r.rank for r in mine)} stands under a condition on the rank"
            # The others stand in the other arm of that branch, or they passed it by.
            beside = any(conditions.in_other_arm(mine[0], theirs[0]) for theirs in others)
            return mine, reason, "mismatch" if beside else "subset"
    beside_each_other = len(earliest) == len(camps)
    if beside_each_other and _opposite_order(camps):
        return everyone, "", "order"
    if len(earliest) == 1 and all(earliest[0] in others for others in behind if others):
        first = camps[earliest[0]]
        return *_went_past(first, [camp for camp in camps if camp is not first]), "subset"
    smallest = camps[0]
    if beside_each_other and all(len(camp) > len(smallest) for camp in camps[1:]):
        return smallest, f"{words.ranks(r.rank for r in smallest)} against the rest", "mismatch"
    return everyone, "", "mismatch"


def _behind(camps: tuple[tuple[Rank, ...], ...]) -> list[set[int]]:
    """For each camp, those that it is ahead of, directly or by way of others (indices)."""
    behind = [
        {n for n, other in enumerate(camps) if other is not camp and progress.is_ahead(camp[0], other[0])}
        for camp in camps
    ]
    for _ in camps:
        behind = [{*direct, *(further for n in direct for further in behind[n])} for direct in behind]
    return behind


def _went_past(behind: tuple[Rank, ...], ahead: list[tuple[Rank, ...]]) -> tuple[tuple[Rank, ...], str]:
    """(ranks to blame, why these), of some that wait in a call and others that are further in the program."""
    rest = tuple(rank for camp in ahead for rank in camp)
    rooted = behind[0].wait is not None and behind[0].wait.operation.op in facts.ROOTED
    if rooted and len(ahead) > 1:
        # A rank may come out of a gather or a broadcast before the others: whoever is furthest did not make it at all.
        furthest = [camp for camp in ahead if not any(progress.is_ahead(other[0], camp[0]) for other in ahead)]
        rest = furthest[0] if len(furthest) == 1 else rest
    left = [rank.rank for rank in behind]
    reason = (
        f"{words.ranks(r.rank for r in rest)} went past the call that {words.ranks(left)} "
        f"{words.verb(left, 'waits', 'wait')} in"
    )
    # Fewer ranks made the call than passed it by: then the call is what should not be there.
    return (behind if len(rest) > len(behind) and not rooted else rest), reason


def _opposite_order(camps: tuple[tuple[Rank, ...], ...]) -> bool:
    """Whether each camp waits in a group of its own, to which a rank of another camp belongs too."""
    groups = {
        (rank.wait.members, rank.wait.operation.group) for camp in camps for rank in camp if rank.wait is not None
    }
    if len(groups) < 2:
        return False
    for camp in camps:
        members = camp[0].wait.members if camp[0].wait is not None else None
        # Everybody is in the default group: that one rank waits in it says nothing about an order.
        if members is None or not any(r.rank in members for other in camps if other is not camp for r in other):
            return False
    return True
