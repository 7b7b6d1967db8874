"""Sends and receives in the source around the place where a rank waits."""

from collections.abc import Set

from hangdoc.reasoning.model import Rank
from hangdoc.reasoning.ranks import conditions
from hangdoc.snapshot import Transfer


def under_conditions(rank: Rank, calls: Set[str]) -> tuple[Transfer, ...] | None:
    """Those of some calls (`send`, `isend`) that a rank may leave out in an iteration. None if the source shows none of these
    calls. Empty if one of them is under no condition but on the rank: it is made in every iteration."""
    found = [one for frame in rank.own for one in frame.transfers if one.call in calls]
    if not found:
        return None
    return tuple(found) if all(any(map(conditions.changes, one.conditions)) for one in found) else ()
