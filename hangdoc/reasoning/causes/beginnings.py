"""Where the ranks began a loop: after a restart from different checkpoints, some have more iterations to do than others."""

from hangdoc.reasoning.causes.disagreements import differing_in
from hangdoc.reasoning.model.agreement import Agreement
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import begin_of


class Began(Cause, frozen=True, kw_only=True):
    """The ranks began a loop at different values of its counter, so some leave it before others."""

    NAME = "loop-begin"
    left: LeftLoop
    values: Agreement[int, int]


def of(run: Run, left: LeftLoop) -> Began | None:
    """The values at which the ranks began the loop that some of them have left; None if they agree or are unknown."""
    if not left.begins_differ:
        return None
    found = {rank.rank: value for rank in run.ranks.values() if (value := begin_of(left.loop, rank)) is not None}
    values = differing_in(run, found)
    return Began(left=left, values=values, culprits=values.odd) if values is not None else None
