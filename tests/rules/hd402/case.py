"""HD402: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Connections, Snapshot
from tests.rules.shapes import MEETS, stranger
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(MEETS(0), connections=Connections(connections=(), listeners=(stranger("net:[1]"),)))


def quiet() -> Snapshot:
    """The listener is the run's own first rank."""
    return snapshot(MEETS(0), connections=Connections(connections=(), listeners=(stranger("net:[1]", pid=100),)))
