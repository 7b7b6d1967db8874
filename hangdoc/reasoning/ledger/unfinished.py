"""The calls of a run that are not finished, by the records of its ranks."""

from collections.abc import Iterator

from hangdoc.reasoning.evidence.records import unfinished_transfers
from hangdoc.reasoning.model.ledger import Pending
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Recorded


def unfinished_calls(run: Run) -> Iterator[Pending | Recorded]:
    """All collectives, sends and receives. Of the last two, only the oldest of each direction between two ranks."""
    for group in run.ledger.groups:
        for calls in group.ranks.values():
            yield from calls.pending
    for process in run.processes.values():
        for _, call in unfinished_transfers(process):
            yield call
