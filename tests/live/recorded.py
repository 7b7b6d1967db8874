"""Processes whose calls torch's flight recorder has, and what hangdoc reads of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hangdoc.observe.torch.calls import Call, Calls
from hangdoc.observe.torch.dump_format import tensors
from hangdoc.observe.torch.memory_reader import MemoryReader
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


def as_torch(calls: Calls, call: Call) -> dict[str, Any]:
    """A call with the names of torch's dump. Before torch 2.9 an entry has no thread."""
    form = calls.forms[call.form]
    return {
        "record_id": call.id, "pg_id": call.group.number, "process_group": [call.group.name, call.group.description],
        "collective_seq_id": call.collective, "p2p_seq_id": call.p2p, "op_id": call.operation, "op": form.op,
        "inputs": form.inputs, "outputs": form.outputs, "time_created_ns": call.made_ns, "timeout_ms": call.timeout_ms,
        "is_p2p": call.is_p2p, "duration_ms": call.duration_ms, "time_discovered_started_ns": call.started_ns,
        "time_discovered_completed_ns": call.completed_ns, "retired": call.retired,
        "thread_id": None if call.thread is None else str(call.thread),
        "thread_name": call.thread_name, "frames": [[f.function, f.file, f.line] for f in form.frames],
    }  # fmt: skip


def by_torch(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of torch's dump, its shapes as texts."""
    kept = {name: entry.get(name) for name in (
        "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "time_created_ns", "timeout_ms",
        "is_p2p", "duration_ms", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "thread_id",
        "thread_name",
    )}  # fmt: skip
    return {
        **kept,
        "op": entry["profiling_name"].rpartition(":")[2],
        "inputs": tensors(entry["input_dtypes"], entry["input_sizes"]),
        "outputs": tensors(entry["output_dtypes"], entry["output_sizes"]),
        "frames": [[f["name"], f["filename"], f["line"]] for f in entry["frames"]],
    }
