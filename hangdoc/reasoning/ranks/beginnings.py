"""At which values ranks began a loop."""

from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks.counters import frame_of, number
from hangdoc.snapshot import Loop


def begins_differ(loop: Loop, one: Rank, other: Rank) -> bool:
    """Whether two ranks visibly began a loop at different values."""
    values = begin_of(loop, one), begin_of(loop, other)
    return None not in values and values[0] != values[1]


def begin_of(loop: Loop, rank: Rank) -> int | None:
    """The value of its counter at which a rank began a loop; None if unknown."""
    frame = frame_of(loop, rank)
    return number(rank.process, frame, loop.begin) if frame is not None and loop.begin is not None else None
