"""HD401: what fires it, and the closest thing to it that is another story."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import AGENT, in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(AGENT)


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4), in_loop(1, 4))
