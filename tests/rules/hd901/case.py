"""HD901: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4, local_world=1))


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9))
