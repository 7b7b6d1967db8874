"""HD201: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import c10d, frame, rank, snapshot


def fires() -> Snapshot:
    return snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), rank(1, *c10d("barrier"), frame("main", 5)))


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4), in_loop(1, 4))
