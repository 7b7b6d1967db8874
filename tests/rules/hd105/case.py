"""HD105: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import behind_loop, data, in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), behind_loop(1, 3))


def quiet() -> Snapshot:
    """The data say why."""
    return snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b")))
