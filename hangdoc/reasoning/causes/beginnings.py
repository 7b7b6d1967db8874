"""Where the ranks began a loop: after a restart from different checkpoints, some have more iterations to do than others."""

from hangdoc.reasoning.causes.agreement import Agreement, differing_in
from hangdoc.reasoning.causes.cause import Cause
from hangdoc.reasoning.kinds import LeftLoop
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.counters import frame_of, number
from hangdoc.snapshot import Loop


class Began(Cause, frozen=True, kw_only=True):
    """The ranks began a loop at different values of its counter, so some leave it before others."""

    NAME = "loop-begin"
    left: LeftLoop
    values: Agreement[int, int]


def differ(loop: Loop, one: Rank, other: Rank) -> bool:
    """Whether two ranks visibly began a loop at different values."""
    values = _value(loop, one), _value(loop, other)
    return None not in values and values[0] != values[1]


def of(run: Run, left: LeftLoop) -> Began | None:
    """The values at which the ranks began the loop that some of them have left; None if they agree or are unknown."""
    if not left.begins_differ:
        return None
    found = {rank.rank: value for rank in run.ranks.values() if (value := _value(left.loop, rank)) is not None}
    values = differing_in(run, found)
    return Began(left=left, values=values, culprits=values.odd) if values is not None else None


def _value(loop: Loop, rank: Rank) -> int | None:
    frame = frame_of(loop, rank)
    return number(rank.process, frame, loop.begin) if frame is not None and loop.begin is not None else None
