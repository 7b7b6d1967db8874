"""What hangdoc reads of torch's flight recorder, beside torch's own dump of it."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.torch.dump_format import tensors
from hangdoc.observe.torch.recorded_calls import Call, Calls
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc.procfs import ProcFS

_TIMES = ("time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms")


@contextmanager
def observed(*pids: int) -> Iterator[Observation]:
    """An observation of these processes as ranks."""
    proc = ProcFS()
    targets = {
        pid: Target(pid, os.getpid(), "rank", "python", (), "S", proc.stat(str(pid)).start_ticks, environment={})
        for pid in pids
    }
    yield Observation(proc, Deadline(60), 0.1, "never", targets)


def read_records(pid: int) -> list[Record]:
    """The whole records of a process. Raises Unreadable."""
    with observed(pid) as observation:
        return MemoryReader().read(observation, observation.targets[pid], None)


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


class Comparison:
    """What was compared in one version of torch."""

    def __init__(self) -> None:
        self.entries = self.timed = self.groups = self.keys = 0
        """Entries, those of them with all times of a GPU, groups with members, and awaited keys of a store."""
        self.unnoticed = 0
        """Times that the card has and that torch's watchdog has not noticed."""
        self.different: Counter[str] = Counter()
        self.examples: dict[str, tuple[Any, Any]] = {}
        """Of each field that differs: hangdoc's value and torch's."""
        self.search_ms: list[float] = []
        self.places: set[str] = set()

    def compare_entries(self, record: Record, dump: dict[str, Any]) -> None:
        """Add all entries of a record. torch's are those of its dump."""
        ours = {call.id: as_torch(record.calls, call) for call in record.calls.calls}
        theirs = {entry["record_id"]: by_torch(entry) for entry in dump["entries"]}
        # Of a full ring, the oldest slot is left out: it may just be overwritten.
        missing = set(theirs) - set(ours) - ({min(theirs)} if len(theirs) == record.capacity else set())
        self._count("entries", len(missing) + len(set(ours) - set(theirs)), len(ours), len(theirs))
        for number in sorted(set(ours) & set(theirs)):
            self.entries += 1
            self.timed += all(theirs[number][name] is not None for name in _TIMES)
            for field, value in ours[number].items():
                self._count(field, value != theirs[number][field], value, theirs[number][field])

    def compare_stable(self, before: Record, after: Record, dump: dict[str, Any]) -> None:
        """Add the entries that were the same before and after the dump, because the process continues meanwhile. torch's dump
        asks the card for what has begun and ended; in memory is what its watchdog has noticed."""
        first = {call.id: as_torch(before.calls, call) for call in before.calls.calls}
        theirs = {entry["record_id"]: by_torch(entry) for entry in dump["entries"]}
        for call in after.calls.calls:
            ours = as_torch(after.calls, call)
            if first.get(call.id) != ours:
                continue
            if call.id not in theirs:
                self._count("entries", 1, ours, None)
                continue
            self.entries += 1
            for field, value in ours.items():
                shown = theirs[call.id][field]
                if value is None and shown is not None and field in _TIMES:
                    self.unnoticed += 1
                else:
                    self._count(field, value != shown, value, shown)

    def compare_groups(self, record: Record, dump: dict[str, Any]) -> None:
        """Add the members of the groups of a record."""
        theirs = {
            (group["name"], group["desc"]): tuple(json.loads(group["ranks"])) for group in dump["groups"].values()
        }
        ours = {group: ranks for group, ranks in record.members.items() if ranks}
        self.groups += len(theirs)
        self._count("members", ours != {group: ranks for group, ranks in theirs.items() if ranks}, ours, theirs)

    def compare_keys(self, observed: dict[str, int], wanted: dict[str, int]) -> None:
        """Add for how many ranks each key of a store is awaited."""
        self.keys += len(wanted)
        self._count("awaited keys", observed != wanted, observed, wanted)

    def compare_place(self, name: str, observed: int, by_symbol: int) -> None:
        """Add where the record of a library is."""
        self._count(f"address in {name}", observed != by_symbol, hex(observed), hex(by_symbol))

    def _count(self, field: str, different: int, ours: object, theirs: object) -> None:
        if different:
            self.different[field] += different
            self.examples.setdefault(field, (ours, theirs))

    def __str__(self) -> str:
        places = ", ".join(sorted(self.places)) or "no record"
        longest = max(self.search_ms, default=0.0)
        return (
            f"{self.entries} entries ({self.timed} with times of a GPU), {self.groups} groups and {self.keys} awaited keys "
            f"compared, fields that differ: {dict(self.different) or 'none'}; found by the scan: {places}; "
            f"first look {longest:.0f} ms"
        )
