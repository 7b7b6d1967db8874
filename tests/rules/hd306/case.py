"""HD306: a snapshot that fires it, and the most similar one that must not."""

from msgspec.structs import replace

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import AGENT
from tests.unit.builders import TORCH, frame, snapshot, stack


def fires() -> Snapshot:
    return snapshot(replace(AGENT, stack=stack(frame("_exit_barrier", 5, TORCH + "distributed/elastic/agent/api.py"))))


def quiet() -> Snapshot:
    return snapshot(AGENT)
