"""HD407: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop, lost
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), in_loop(1, 4), connections=lost(unacked=3, backoff=5))


def quiet() -> Snapshot:
    """One doubling of the timer: a lost segment, as happens."""
    return snapshot(in_loop(0, 4), in_loop(1, 4), connections=lost(unacked=3, backoff=1))
