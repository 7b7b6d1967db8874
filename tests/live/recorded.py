"""Processes whose calls torch's flight recorder has, and what hangdoc reads of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hangdoc.observe.torch.recorded_calls import Calls
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc_trainer.offspring import free_port
from tests.live.watched import PROGRAMS
from tests.pythons import observed


@contextmanager
def recording(*arguments: str, python: str = sys.executable, **variables: str) -> Iterator[int]:
    """The pid of a rank, alone in its run, that has begun to record."""
    rendezvous = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = subprocess.Popen(
        [python, str(PROGRAMS / "recorded.py"), *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **rendezvous, **variables},
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline().startswith(b"ready")
        yield started.pid
    finally:
        started.kill()
        started.communicate()


def calls_of(pid: int, entries: int | None = None) -> Calls:
    """What the record of a process holds."""
    with observed(pid) as observation:
        (record,) = MemoryReader().read(observation, observation.targets[pid], entries)
    return record.calls
