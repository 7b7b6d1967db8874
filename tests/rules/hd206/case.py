"""HD206: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.unit.builders import c10d, frame, local, rank, snapshot


def fires() -> Snapshot:
    return snapshot(
        *(rank(n, *c10d("all_reduce", local("tensor", f"float32[{4 + n}]")), frame("main", 5)) for n in range(2))
    )


def quiet() -> Snapshot:
    """Other shapes, as many elements of one type."""
    return snapshot(
        rank(0, *c10d("all_reduce", local("tensor", "float32[2, 3]")), frame("main", 5)),
        rank(1, *c10d("all_reduce", local("tensor", "float32[6]")), frame("main", 5)),
    )
