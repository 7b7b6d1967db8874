"""Calls that the handler of a signal makes, which only some ranks have received."""

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import Handling, find_handler
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.rank import Rank, ranks_of
from hangdoc.reasoning.model.run import Run


class HandlerCalls(Cause, frozen=True, kw_only=True):
    """A rank is in a collective that the handler of a signal calls, and the others wait in other calls."""

    NAME = "signal-handler"
    rank: Rank
    handling: Handling


def find_signal_handler(run: Run, blockage: Blockage) -> HandlerCalls | None:
    """The handler of a signal in which some of the ranks that wait for each other make their call. None if a rank waits in no
    call: it may be in the same handler, or come to it. Python runs a handler between two instructions, so a rank that waits in a
    call of torch does not come to it."""
    classes = (*blockage.awaited, *blockage.waiting)
    if not all(alike.first.wait is not None and alike.first.label == "blocked" for alike in classes):
        return None
    inside = [alike for alike in classes if _is_in_handler(alike.first)]
    if not inside or len(inside) == len(classes):
        return None
    first = inside[0].first
    found = find_handler(first.thread) if first.thread is not None else None
    if found is None:  # another thread of it is in the handler
        return None
    return HandlerCalls(culprits=ranks_of(inside), rank=first, handling=found)


def _is_in_handler(rank: Rank) -> bool:
    threads = observed.python_threads(rank.process) if rank.process is not None else ()
    return any(find_handler(thread) is not None for thread in threads)
