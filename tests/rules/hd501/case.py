"""HD501: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import behind_loop, in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(
        in_loop(0, 4, argv=("python", "train.py", "--grad-accum", "2")),
        behind_loop(1, 3, argv=("python", "train.py", "--grad-accum", "4")),
    )


def quiet() -> Snapshot:
    """Meant to differ, or only tuning."""
    return snapshot(
        in_loop(0, 4, argv=("python", "train.py", "--seed", "1", "--num-workers=2")),
        in_loop(1, 4, argv=("python", "train.py", "--seed", "2", "--num-workers=4")),
    )
