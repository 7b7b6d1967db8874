"""HD401: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import AGENT, in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(AGENT)


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4), in_loop(1, 4))
