"""HD602: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop, steps
from tests.unit.builders import frame, rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, frame("evaluate", 3), train(12), cpu=0.99, progress=steps(3, 4)))


def quiet() -> Snapshot:
    """It works on what counts nothing: nobody knows whether it is legitimate."""
    return snapshot(in_loop(0, 4), rank(1, frame("solve", 3), train(12), cpu=0.99))
