"""Step 3: ranks about which the same was concluded become one class."""

from collections.abc import Hashable, Iterable

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.ranks.counters import comes_on


def classes_of(ranks: Iterable[Rank]) -> tuple[Class, ...]:
    """All classes, by their lowest ranks."""
    by_conclusions: dict[Hashable, list[Rank]] = {}
    by_rank: dict[int, list[Rank]] = {}
    # Nothing more is concluded about a rank that is like another one, so it comes after that one.
    for rank in sorted(ranks, key=lambda rank: rank.like is not None):
        if rank.like is not None:
            by_rank[rank.rank] = by_rank[rank.like]
        else:
            by_rank[rank.rank] = by_conclusions.setdefault(_list_conclusions(rank), [])
        by_rank[rank.rank].append(rank)
    members = (sorted(ranks_alike, key=lambda rank: rank.rank) for ranks_alike in by_conclusions.values())
    classes = (Class(ranks_alike[0], tuple(rank.rank for rank in ranks_alike)) for ranks_alike in members)
    return tuple(sorted(classes, key=lambda alike: alike.ranks[0]))


def _list_conclusions(rank: Rank) -> Hashable:
    """All that the steps after this one ask about a rank in which two ranks may differ."""
    hold = rank.hold
    loop = rank.loop
    busy = rank.label == "computing" and rank.process is not None
    return (
        rank.label,
        rank.state,
        None if rank.at_rest is None else rank.at_rest.state,
        rank.wait,
        rank.passed,
        None if hold is None else hold.alike,
        tuple((frame.file, frame.function, frame.line) for frame in rank.program),
        rank.where,
        rank.moving,
        rank.counters_moved,
        (rank.work is not None, rank.process is not None and comes_on(rank.process, rank.thread)) if busy else None,
        None if loop is None else (loop.inside, loop.done, loop.total),
        # Parts of a run (trainers, rollouts) have default groups of their own.
        observed.default_members(rank.process) if rank.wait is None else (),
    )
