"""HD205: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import TWO_GROUPS
from tests.unit.builders import c10d, frame, local, rank, snapshot


def fires() -> Snapshot:
    return snapshot(
        *(
            rank(
                n, *c10d("all_reduce", local("group", "<PG>", address=10 + n)), frame("main", 5), interpreter=TWO_GROUPS
            )
            for n in range(2)
        )
    )


def quiet() -> Snapshot:
    return snapshot(
        *(
            rank(n, *c10d("all_reduce", local("group", "<PG>", address=10)), frame("main", 5), interpreter=TWO_GROUPS)
            for n in range(2)
        )
    )
