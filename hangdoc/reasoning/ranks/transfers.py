"""Sends and receives in the source around the place where a rank waits."""

from collections.abc import Set

from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import conditions
from hangdoc.snapshot import Frame, Transfer


def under_conditions(rank: Rank, calls: Set[str]) -> tuple[Transfer, ...] | None:
    """Those of some calls (`send`, `isend`) that a rank may leave out in an iteration. None if the source shows none of these
    calls. Empty if one of them is made in every iteration, or in this one: under no condition but on the rank, and those that
    hold where the rank waits."""
    found = [(one, frame) for frame in rank.own for one in frame.transfers if one.call in calls]
    if not found:
        return None
    left_out = tuple(one for one, frame in found if _may_leave_out(one, frame))
    return left_out if len(left_out) == len(found) else ()


def _may_leave_out(call: Transfer, frame: Frame) -> bool:
    return any(conditions.changes(test) for test in call.conditions if test not in frame.conditions)
