"""HD404: what fires it, and the closest thing to it that is another story."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import called


def fires() -> Snapshot:
    return called("172.17.0.1", retries=5, interface="docker0")


def quiet() -> Snapshot:
    return called("10.0.0.1", retries=5)
