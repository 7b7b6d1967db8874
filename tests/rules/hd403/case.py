"""HD403: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import called


def fires() -> Snapshot:
    return called("10.0.0.1", retries=5)


def quiet() -> Snapshot:
    """One repetition: a lost packet, as happens; and an interface that leads nowhere is not called at all."""
    return called("10.0.0.1", retries=1)
