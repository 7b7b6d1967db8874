"""HD104: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import data
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(rank(0, train(12), cpu=0.9, data=data(9, "a")), rank(1, train(12), cpu=0.9, data=data(9, "b")))


def quiet() -> Snapshot:
    return snapshot(*(rank(n, train(12), cpu=0.9, data=data(9, "a")) for n in range(2)))
