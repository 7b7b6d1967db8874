"""HD404: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import called


def fires() -> Snapshot:
    return called("172.17.0.1", retries=5, interface="docker0")


def quiet() -> Snapshot:
    return called("10.0.0.1", retries=5)
