"""HD603: a snapshot that fires it, and the most similar one that must not."""

from msgspec.structs import replace

from hangdoc.snapshot import Connections, Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import silent, snapshot


def _busy(milliseconds: int) -> Snapshot:
    """Two ranks in their backward, whose link had data under way for so long in a window of a second."""
    ends = (replace(end, bytes_moved=250_000, busy_ms=milliseconds) for end in silent(2, 0.0).connections)
    return snapshot(in_loop(0, 4, cpu=0.05), in_loop(1, 4, cpu=0.05), connections=Connections(connections=tuple(ends)))


def fires() -> Snapshot:
    return _busy(900)


def quiet() -> Snapshot:
    return _busy(100)
