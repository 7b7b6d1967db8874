"""HD406: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import agents, asked


def fires() -> Snapshot:
    return agents(asked(0), asked(1, port=29501))


def quiet() -> Snapshot:
    """Ranks of a node are meant to differ."""
    return agents(asked(0), asked(1))
