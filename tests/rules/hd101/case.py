"""HD101: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import behind_loop, data, in_loop
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b")))


def quiet() -> Snapshot:
    """Different data, but the other rank is still in the loop and computes."""
    return snapshot(in_loop(0, 4, data=data(201, "a")), rank(1, train(12), cpu=0.9, data=data(4, "b")))
