"""HD304: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(
        in_loop(0, 4),
        rank(1, train(12, source="with self.lock:"), kernel={"syscall": "futex", "wchan": "futex_wait_queue"}),
    )


def quiet() -> Snapshot:
    """It waits for an event, which another thread may set."""
    return snapshot(
        in_loop(0, 4),
        rank(1, train(12, source="ready.wait()"), kernel={"syscall": "futex", "wchan": "futex_wait_queue"}),
    )
