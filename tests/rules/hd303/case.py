"""HD303: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import FileBytes, Snapshot
from tests.rules.shapes import STUCK_IN_NFS, in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(in_loop(0, 4), STUCK_IN_NFS())


def quiet() -> Snapshot:
    """It reads on: slow, not stuck."""
    return snapshot(in_loop(0, 4), STUCK_IN_NFS(files=FileBytes(read_bytes=5_000_000, written_bytes=0)))
