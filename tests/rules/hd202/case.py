"""HD202: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import frame, rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, frame("work", 3), train(12), cpu=0.99))


def quiet() -> Snapshot:
    """Nobody waits: both compute."""
    return snapshot(rank(0, train(12), cpu=0.9), rank(1, train(12), cpu=0.9))
