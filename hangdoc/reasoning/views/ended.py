"""Which ranks run no further batch of this pass over the data, for everything that shows batches."""

from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import batches


def has_ended(run: Run, rank: Rank) -> bool:
    """Whether a rank has left its loop over the data, has done all of it, or is dead."""
    count = batches(rank)
    if count.done is None:
        return False
    if rank.label == "dead" or (rank.loop is not None and not rank.loop.inside):
        return True
    if any(isinstance(one.kind, LeftLoop) and rank.rank in one.culprits for one in run.blockages):
        return True
    # A dataloader counts the batch in which the rank is now.
    return count.source != "loader" and count.total is not None and count.done >= count.total
