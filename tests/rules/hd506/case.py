"""HD506: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import AGENT_ALONE, lonely
from tests.unit.builders import TORCH, frame, snapshot, train


def fires() -> Snapshot:
    return snapshot(
        AGENT_ALONE,
        *(lonely(n, frame("Linear.forward", 9, TORCH + "nn/modules/linear.py"), train(12)) for n in range(2)),
        silence=None,
    )


def quiet() -> Snapshot:
    """It imports and prepares: the process group may still come."""
    return snapshot(
        AGENT_ALONE,
        *(lonely(n, frame("tokenize", 9), train(12)) for n in range(2)),
        silence=None,
    )
