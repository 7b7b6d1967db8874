"""HD503: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Runtime, Snapshot
from tests.rules.shapes import in_loop
from tests.unit.builders import snapshot


def fires() -> Snapshot:
    return snapshot(
        *(in_loop(n, 4, runtime=Runtime(python="3.11", executable=None, torch=f"2.{n}.0")) for n in range(2))
    )


def quiet() -> Snapshot:
    return snapshot(*(in_loop(n, 4, runtime=Runtime(python="3.11", executable=None, torch="2.13.0")) for n in range(2)))
