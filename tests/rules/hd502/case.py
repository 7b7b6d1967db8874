"""HD502: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}), in_loop(1, 4))


def quiet() -> Snapshot:
    return snapshot(in_loop(0, 4, environment={"OMP_NUM_THREADS": "1"}), in_loop(1, 4))
