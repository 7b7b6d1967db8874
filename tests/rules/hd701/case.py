"""HD701: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import gpu_rank
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(gpu_rank(0), gpu_rank(1))


def quiet() -> Snapshot:
    """The same stack in a rank that has no GPU threads."""
    return snapshot(gpu_rank(0, threads=()), gpu_rank(1, threads=()))
