"""HD103: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import LOADER, WORKER, in_loop
from tests.unit.builders import frame, helper, rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, *LOADER, train(10)), helper(7, 101, frame("Data.__getitem__", 8), WORKER))


def quiet() -> Snapshot:
    """The worker is at work: the loader moves."""
    return snapshot(
        in_loop(0, 4),
        rank(1, *LOADER, train(10)),
        helper(7, 101, frame("Data.__getitem__", 8), WORKER, clocks=rank(1, cpu=0.9).clocks),
    )
