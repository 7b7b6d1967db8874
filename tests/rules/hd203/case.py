"""HD203: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.unit.builders import c10d, frame, rank, snapshot


def fires() -> Snapshot:
    return snapshot(
        rank(0, *c10d("barrier"), frame("main", 5, source="dist.barrier()", conditions=("rank == 0",))),
        rank(1, *c10d("all_reduce"), frame("main", 9, source="dist.all_reduce(x)")),
    )


def quiet() -> Snapshot:
    """Two arms of one branch: a mismatch."""
    return snapshot(
        rank(0, *c10d("barrier"), frame("main", 5, conditions=("step < 3",))),
        rank(1, *c10d("all_reduce"), frame("main", 9, conditions=("not (step < 3)",))),
    )
