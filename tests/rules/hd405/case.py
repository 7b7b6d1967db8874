"""HD405: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import MEETS, machine
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(MEETS(0), machine=machine(hostname_addresses=("127.0.1.1",)))


def quiet() -> Snapshot:
    return snapshot(MEETS(0), machine=machine(hostname_addresses=("10.0.0.7",)))
