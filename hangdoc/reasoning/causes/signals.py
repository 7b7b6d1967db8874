"""Calls that the handler of a signal makes, which only some ranks have received."""

from hangdoc.reasoning.evidence.stack import handled_signal
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.rank import Rank, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Frame


class HandlerCalls(Cause, frozen=True, kw_only=True):
    """A rank is in a collective that the handler of a signal calls."""

    NAME = "signal-handler"
    rank: Rank
    signal: int
    handler: Frame
    interrupted: Frame | None
    """Where the signal came; None if that was not read."""


def find_signal_handler(run: Run, blockage: Blockage) -> HandlerCalls | None:
    """The handler of a signal in which some of the ranks that wait for each other make their call; None if all do, or none."""
    classes = (*blockage.awaited, *blockage.waiting)
    inside = [alike for alike in classes if alike.first.wait is not None and _find_handler(alike.first) is not None]
    if not inside or len(inside) == len(classes):
        return None
    first = inside[0].first
    found = _find_handler(first)
    if found is None:
        return None
    signal, handler, interrupted = found
    return HandlerCalls(
        culprits=ranks_of(inside), rank=first, signal=signal, handler=handler, interrupted=interrupted, ends="never"
    )


def _find_handler(rank: Rank) -> tuple[int, Frame, Frame | None] | None:
    """The number of a signal, the innermost frame that handles it, and the one that it interrupted."""
    frames = rank.thread.frames if rank.thread is not None else ()
    handling = [(at, signal) for at, frame in enumerate(frames) if (signal := handled_signal(frame)) is not None]
    if not handling:
        return None
    interrupted = next(iter(frames[handling[-1][0] + 1 :]), None)
    return handling[0][1], frames[handling[0][0]], interrupted
