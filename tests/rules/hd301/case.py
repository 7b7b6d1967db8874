"""HD301: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4))


def quiet() -> Snapshot:
    """The other rank may live on another host."""
    return snapshot(in_loop(0, 4, local_world=1))
