"""Measures what reading torch's flight recorder costs and whether it is right.

The CPU of a look with and without it, the time for the last entries of 64 ranks and for whole records, and torn entries while
ranks make calls without end.

python -m bench recorder; python -m bench.recorder ENTRIES for another number of entries that are searched for torn ones.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.one_look import cpu_seconds
from bench.table import row
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.torch import recorder_instance
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc.procfs import ProcFS
from hangdoc_trainer.offspring import free_port

_PROGRAM = Path(__file__).parent.parent / "tests" / "live" / "programs" / "recorded.py"
_LOOK = """
import sys
from hangdoc.observe.look import observe
if sys.argv[1] == "without":
    observe.PROBES = tuple(probe for probe in observe.PROBES if "FlightRecorders" not in repr(probe))
observe.observe(observe.Options(pids=tuple(map(int, sys.argv[2:])), window=0.5, native="never"))
"""
_RANKS, _READ_RANKS, _ROUNDS = 4, 64, 9
_ENTRIES = 100_000
_CALLS = (("all_gather", 9), ("all_reduce", 2), ("broadcast", 1))
"""By number modulo 3: what `recorded.py` calls, and the dimensions of its tensor."""


def recorder(entries: int = _ENTRIES) -> None:
    """Print all measurements."""
    with ExitStack() as stack:
        pids = [stack.enter_context(_Rank("some", "700")).pid for _ in range(_RANKS)]
        _print_reading(pids)
        _print_looks(pids[:2])
    with ExitStack() as stack:
        for pause in ((), ("0.005",)):
            _search_torn([stack.enter_context(_Rank("hammer", *pause)).pid for _ in range(2)], entries // 2)


class _Rank:
    """A rank that is alone in its run, with a record."""

    def __init__(self, *arguments: str) -> None:
        rendezvous = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", **rendezvous},
        )  # fmt: skip
        self.pid = self._process.pid

    def __enter__(self) -> "_Rank":
        if self._process.stdout is None or not self._process.stdout.readline().startswith(b"ready"):
            raise SystemExit("a rank did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _observation(pids: list[int]) -> Observation:
    proc = ProcFS()
    targets = {
        pid: Target(pid, os.getpid(), "rank", "python", (), "S", proc.stat(str(pid)).start_ticks, environment={})
        for pid in pids
    }
    return Observation(proc, Deadline(600), 0.1, "never", targets)


def _print_reading(pids: list[int]) -> None:
    """CPU of the readings of each rank, in milliseconds, and switches of the ranks."""
    measured: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        recorder_instance._offsets.clear()
        observation = _observation(pids)  # each has its own budget
        for pid in pids:
            reader, target = MemoryReader(), observation.targets[pid]
            observation.image(pid)
            count = partial(reader.count, observation, target)
            _measure(measured, "find the record" if pid == pids[0] else "find it, known from another process", count)
            _measure(measured, "count its calls", count)
            _measure(measured, "last 64 entries, first time", partial(reader.read, observation, target, 64))
            _measure(measured, "all 2,000 entries", partial(reader.read, observation, target, None))
            _measure(measured, "all, unchanged", partial(reader.read, observation, target, None))
            reader._last.clear()
            _measure(measured, "last 64 entries", partial(reader.read, observation, target, 64))
    for name, times in measured.items():
        print(f"{name:45} {statistics.median(times):8.3f} ms of CPU, {min(times):.3f} at least", flush=True)
    before, began = _switches(pids), time.perf_counter()
    observation = _observation(pids)
    readers = {pid: MemoryReader() for pid in pids}
    for _ in range(_READ_RANKS // len(pids)):
        for pid in pids:
            readers[pid]._last.clear()
            readers[pid].read(observation, observation.targets[pid], 64)
    took = time.perf_counter() - began
    print(
        f"last 64 entries of {_READ_RANKS} ranks: {took * 1e3:.0f} ms, {took / _READ_RANKS * 1e3:.2f} ms a rank (aim 5); "
        f"the ranks were switched {_switches(pids) - before} times (aim 0)",
        flush=True,
    )


def _measure(measured: dict[str, list[float]], name: str, action: Callable[[], object]) -> None:
    began = time.thread_time()
    action()
    measured.setdefault(name, []).append((time.thread_time() - began) * 1e3)


def _switches(pids: list[int]) -> int:
    proc, names = ProcFS(), ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return sum(int(number or 0) for pid in pids for number in proc.fields(str(pid), *names))


def _print_looks(pids: list[int]) -> None:
    """CPU of a look at two ranks whose records are full, with and without the record."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(_ROUNDS):
        for way, used in (("with", ours), ("without", theirs)):
            used.append(cpu_seconds(sys.executable, "-c", _LOOK, way, *map(str, pids)))
    row("CPU of a look at 2 ranks with full records, against without them", ours, theirs, "2")


def _search_torn(pids: list[int], entries: int) -> None:
    """Read records that are being written until so many entries were read; all must be consistent."""
    readers = {pid: MemoryReader() for pid in pids}
    read = torn = 0
    made: dict[int, int] = {}
    first: dict[int, int] = {}
    began = time.monotonic()
    while read < entries:
        observation = _observation(pids)
        for pid in pids:
            (record,) = readers[pid].read(observation, observation.targets[pid], None)
            read += len(record.calls.calls)
            torn += _inconsistent(record)
            made[pid] = record.made
            first.setdefault(pid, record.made)
    rate = sum(made[pid] - first[pid] for pid in pids) / len(pids) / (time.monotonic() - began)
    print(f"{read:,} entries of 2 ranks that make {rate:.0f} calls a second: {torn} inconsistent (aim 0)", flush=True)


def _inconsistent(record: Record) -> int:
    """How many entries have another operation, shape or line than their number says, or no neighbour."""
    wrong = 0
    lines: dict[str, int] = {}
    last = None
    for call in record.calls.calls:
        form = record.calls.forms[call.form]
        op, dimensions = _CALLS[call.collective % 3]
        line = next((frame.line for frame in form.frames if frame.function == "alternate"), 0)
        wrong += (
            form.op != op
            or form.inputs[0].count(",") + 1 != dimensions
            or lines.setdefault(op, line) != line
            or (last is not None and call.id != last + 1)
            or call.collective != call.id + 1
        )
        last = call.id
    return wrong


if __name__ == "__main__":
    recorder(*map(int, sys.argv[1:]))
