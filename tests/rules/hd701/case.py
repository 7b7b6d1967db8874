"""HD701: what fires it, and the closest thing to it that is another story."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import gpu_rank
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(gpu_rank(0), gpu_rank(1))


def quiet() -> Snapshot:
    """The same stack in a rank that has no GPU threads."""
    return snapshot(gpu_rank(0, threads=()), gpu_rank(1, threads=()))
