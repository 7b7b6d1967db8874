"""HD302: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, train(12), state="T"))


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9))
