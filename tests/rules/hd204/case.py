"""HD204: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.unit.builders import c10d, frame, local, rank, snapshot


def fires() -> Snapshot:
    return snapshot(
        rank(0, *c10d("send", local("dst", 1)), frame("main", 5)),
        rank(1, *c10d("send", local("dst", 0)), frame("main", 5)),
    )


def quiet() -> Snapshot:
    return snapshot(rank(0, *c10d("recv", local("src", 1)), frame("main", 5)), rank(1, frame("work", 3), cpu=0.9))
