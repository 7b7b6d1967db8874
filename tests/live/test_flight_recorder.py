"""torch's flight recorder, read from the memory of real ranks and compared with what torch itself says."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangbench.recorder import as_torch, by_torch
from hangdoc.dumps.dump_snapshot import read_dumps
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.look.polling import Polling
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import FlightRecorder, Process, RecordedGroup, Unavailable
from tests.live.recorded import calls_of, recording
from tests.live.watched import under_torchrun
from tests.pythons import observed

_FILL = 2_100
"""More calls than the record keeps."""

Dumps = list[dict[str, Any]]
dumped: list[Path] = []
"""The directory of the present run, with the files of torch's own pickler."""


@pytest.fixture(scope="module", params=[5, _FILL], ids=["few calls", "a full ring"])
def frozen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, can_attach: None
) -> Iterator[Dumps]:
    """Two ranks, of which the first waits for the second, and their own dumps."""
    folder = tmp_path_factory.mktemp("recorded")
    dumped.clear()
    with under_torchrun(folder, "recorded.py", "all", str(folder), str(request.param)) as run:
        files = [folder / f"{rank}.entries" for rank in range(2)]
        until = time.monotonic() + 1000
        while not all(file.exists() for file in files):
            assert time.monotonic() < until, run.log()[-3000:]
            time.sleep(0.05)
        dumped.append(folder)
        yield [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_every_field_is_that_of_torchs_own_dump(frozen: Dumps, stopped: bool) -> None:
    for dump in frozen:
        if stopped:
            os.kill(dump["pid"], signal.SIGSTOP)
        try:
            calls = calls_of(dump["pid"])
        finally:
            os.kill(dump["pid"], signal.SIGCONT)
        ours = [as_torch(calls, call) for call in calls.calls]
        theirs = [by_torch(entry) for entry in dump["entries"]]
        # Of a full ring, the oldest slot is left out: it may just be overwritten.
        assert len(theirs) - len(ours) == (len(theirs) == 2000)
        assert ours == theirs[-len(ours) :]
        assert any(call["frames"][-1][0] == "<module>" for call in ours)


def test_torchs_own_files_say_who_did_not_come(frozen: Dumps) -> None:
    """Written by torch's own pickler."""
    snapshot = read_dumps(dumped[0], 60.0)
    for process, dump in zip(snapshot.hosts[0].processes, frozen, strict=True):
        assert isinstance(process.recorder, FlightRecorder)
        history = default(process.recorder).history
        assert history is not None
        entries = [e for e in dump["entries"] if e["process_group"][1] == "default_pg"]
        assert list(history.numbers) == sorted({entry["collective_seq_id"] for entry in entries})
        assert process.recorder.whole == (len(dump["entries"]) < 2000)
    (job,) = diagnose(snapshot).jobs
    assert (job.findings[0].code, job.findings[0].culprits, job.findings[0].victims) == ("HD202", (1,), (0,))
    assert job.backend == "gloo"
    assert job.ranks[0].where is not None
    assert job.ranks[0].where.file.endswith("recorded.py")


def recorders(processes: tuple[Process, ...]) -> dict[int, FlightRecorder]:
    return {p.identity.rank: p.recorder for p in processes if p.identity and isinstance(p.recorder, FlightRecorder)}


def default(recorder: FlightRecorder) -> RecordedGroup:
    (group,) = (group for group in recorder.groups if group.default)
    return group


def test_one_look_reads_all_calls_of_a_frozen_run(frozen: Dumps) -> None:
    pids = tuple(dump["pid"] for dump in frozen)
    (host,) = observe(Options(pids=pids, window=0.5, native="never")).hosts
    found = recorders(host.processes)
    for rank, dump in enumerate(frozen):
        group = default(found[rank])
        entries = [e for e in dump["entries"] if e["process_group"][1] == "default_pg"][-1900:]
        assert group.issued == group.issued_before == entries[-1]["collective_seq_id"]
        assert group.history is not None
        assert list(group.history.numbers[-1900:]) == [entry["collective_seq_id"] for entry in entries]
        assert list(group.history.made_us[-1900:]) == [entry["time_created_ns"] // 1000 for entry in entries]
        assert len(found[rank].forms) < 25
        assert found[rank].capacity == 2000
    assert host.wall_us is not None
    (waits,) = default(found[0]).pending
    assert (waits.op, waits.inputs, waits.timeout_seconds) == ("all_reduce", ("float32[13, 5]",), 1800.0)
    assert waits.age_seconds == pytest.approx(
        (host.wall_us * 1000 - frozen[0]["entries"][-1]["time_created_ns"]) / 1e9, abs=2
    )
    assert [frame.function for frame in waits.frames if not frame.library] == ["main", "<module>"]
    assert default(found[1]).pending == ()


def test_polls_count_calls_without_a_pause(can_attach: None) -> None:
    with recording("hammer") as pid:
        polling = Polling(Options(pids=(pid,), window=0.3, native="never"))
        try:
            polling.look()
            counted = []
            for _ in range(3):
                group = default(recorders(polling.look().hosts[0].processes)[0])
                assert group.history is not None
                assert len(group.history.numbers) <= 64
                counted.append((group.issued_before, group.issued))
        finally:
            polling.close()
    numbers = [number for pair in counted for number in pair if number is not None]
    assert len(numbers) == 6
    assert numbers == sorted(numbers)
    assert all(before < after for before, after in counted)  # type: ignore[operator]


def test_nothing_is_torn_while_the_rank_calls_without_end(can_attach: None) -> None:
    """Each call has one operation, one shape and one line, so a mixed entry shows. `python -m bench recorder` reads 100,000."""
    with recording("hammer", TORCH_FR_BUFFER_SIZE="1000") as pid, observed(pid) as observation:
        reader = MemoryReader()
        read, wraps = 0, 0
        last = 0
        while read < 3_000 or wraps < 20:
            observation.deadline = Deadline(60)  # each look has its own budget
            (record,) = reader.read(observation, observation.targets[pid], None)
            read += count_consistent(record)
            wraps, last = wraps + (record.made - last > 50), record.made


def count_consistent(record: Record) -> int:
    """How many entries a record of `recorded.py hammer` has, all of them consistent."""
    seen: set[tuple[str, tuple[str, ...], int]] = set()
    for call in record.calls.calls:
        form = record.calls.forms[call.form]
        seen.add((form.op, form.inputs, next(frame.line for frame in form.frames if frame.function == "alternate")))
        assert form.op == OPERATIONS[call.collective % 3][0]
        assert form.inputs == (OPERATIONS[call.collective % 3][1],)
    assert len(seen) <= 3
    numbers = [call.id for call in record.calls.calls]
    assert numbers == sorted(set(numbers))
    return len(numbers)


OPERATIONS = {
    1: ("all_reduce", "float32[8, 4]"),
    2: ("broadcast", "int64[3]"),
    0: ("all_gather", "float32[2, 2, 2, 2, 1, 1, 1, 1, 1]"),
}
"""By number modulo 3, what `recorded.py hammer` calls."""


def test_a_rank_that_holds_the_gil(can_attach: None) -> None:
    with recording("some", "4", "hold the GIL") as pid:
        assert [call.collective for call in calls_of(pid).calls] == list(range(1, 13))


def test_a_record_that_begins_later(can_attach: None) -> None:
    """torch makes it with the first group, which may be after the first look."""
    program = """
import os, sys, torch, torch.distributed as dist
print("ready", flush=True)
sys.stdin.readline()
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=0, world_size=1)
dist.barrier()
print("done", flush=True)
sys.stdin.read()
"""
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "MEETING": f"{folder}/meeting"},
    ) as rank:  # fmt: skip
        try:
            assert rank.stdout is not None
            assert rank.stdin is not None
            assert rank.stdout.readline() == b"ready\n"
            reader = MemoryReader()
            with observed(rank.pid) as observation:
                target = observation.targets[rank.pid]
                with pytest.raises(Unreadable, match="has not begun it yet"):
                    reader.read(observation, target)
                rank.stdin.write(b"go on\n")
                rank.stdin.flush()
                assert rank.stdout.readline() == b"done\n"
                until = time.monotonic() + 100
                while True:
                    try:
                        (record,) = reader.read(observation, target)
                        break
                    except Unreadable:
                        assert time.monotonic() < until
                        time.sleep(0.05)
                assert [call.collective for call in record.calls.calls] == [1]
        finally:
            rank.kill()


def test_a_record_that_is_off_is_said_to_be_off(can_attach: None) -> None:
    with recording("some", "3", TORCH_FR_BUFFER_SIZE="0") as pid, observed(pid) as observation:
        with pytest.raises(Unreadable, match=r"is off: TORCH_FR_BUFFER_SIZE=2000 turns it on"):
            MemoryReader().read(observation, observation.targets[pid])
        (host,) = observe(Options(pids=(pid,), window=0.2, native="never")).hosts
        rank = next(process for process in host.processes if process.role == "rank")
        assert isinstance(rank.recorder, Unavailable)
        assert "TORCH_FR_BUFFER_SIZE" in rank.recorder.reason
