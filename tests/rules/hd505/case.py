"""HD505: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import crowd, machine
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(rank(0, train(12), cpu=0.9, world=1, clocks=crowd(8)), machine=machine(cores=2))


def quiet() -> Snapshot:
    return snapshot(rank(0, train(12), cpu=0.9, world=1, clocks=crowd(2)), machine=machine(cores=2))
