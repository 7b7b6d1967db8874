"""HD305: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.unit.builders import rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(*(rank(n, train(12), cpu=0.9, ppid=1, owner=None, launcher_gone=True) for n in range(2)))


def quiet() -> Snapshot:
    """Started by nohup, setsid or in a container: the parent 1 says nothing."""
    return snapshot(*(rank(n, train(12), cpu=0.9, ppid=1, owner=None) for n in range(2)))
