"""Ranks that called something else than the others long before the call in which the run stands still."""

from hangdoc.reasoning.ledger.compare import Behind, Differs, SizesDiffer, compare
from hangdoc.reasoning.ledger.history import FirstDifference, first_difference
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.kinds import Cycle, SameCall
from hangdoc.reasoning.model.ledger import GroupCalls
from hangdoc.reasoning.model.rank import numbers_of
from hangdoc.reasoning.model.run import Run

_LEAST_CALLS = 10
"""A difference that is younger is a part of the hang itself."""


class DivergedEarlier(Cause, frozen=True, kw_only=True):
    """Since an earlier call, the calls of some ranks are those of the others, shifted."""

    NAME = "diverged-earlier"
    group: GroupCalls
    difference: FirstDifference


def find(run: Run, blockage: Blockage) -> DivergedEarlier | None:
    """The first such difference in a group in which ranks of a blockage wait in calls that do not meet; None for none."""
    if not isinstance(blockage.kind, Cycle | SameCall) or blockage.under_way:
        return None
    ranks = set(numbers_of((*blockage.awaited, *blockage.waiting)))
    for group in run.ledger.groups:
        if _stands_still(group, ranks) and isinstance(compare(group), Behind | Differs | SizesDiffer):
            difference = first_difference(group)
            if difference is not None and difference.calls_ago >= _LEAST_CALLS and ranks & set(difference.ranks):
                few = len(difference.ranks) < len(difference.others)
                culprits = difference.ranks if few else (*difference.ranks, *difference.others)
                return DivergedEarlier(culprits=tuple(sorted(culprits)), group=group, difference=difference)
    return None


def _stands_still(group: GroupCalls, ranks: set[int]) -> bool:
    """Whether some of the ranks wait in a call of the group, and no rank has made one in the window."""
    waiting = any(made.pending and rank in ranks for rank, made in group.ranks.items())
    return waiting and not any(made.moved for made in group.ranks.values())
