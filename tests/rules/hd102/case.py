"""HD102: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import behind_loop, data, in_loop
from tests.unit.builders import c10d, local, rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4, batches=5, data=data(9, "a")), behind_loop(1, 3, batches=4, data=data(9, "a")))


def quiet() -> Snapshot:
    """Two ranks in the same round of the loop."""
    return snapshot(in_loop(0, 4), rank(1, *c10d("barrier"), train(18, locals=(local("step", 4),))))
