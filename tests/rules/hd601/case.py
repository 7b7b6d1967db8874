"""HD601: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import steps
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(
        rank(0, train(15), cpu=0.2, progress=steps(10, 15)), rank(1, train(12), cpu=0.95, progress=steps(10, 15))
    )


def quiet() -> Snapshot:
    """One round: a phase, not a habit."""
    return snapshot(
        rank(0, train(15), cpu=0.2, progress=steps(10, 11)), rank(1, train(12), cpu=0.95, progress=steps(10, 11))
    )
