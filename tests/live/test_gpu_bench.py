"""The bench for one NVIDIA card, on Gloo: what it does around its cases is the same."""

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hangbench.gpu.trial import Trial
from hangdoc_trainer.offspring import Offspring

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]


@contextmanager
def bench(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Offspring]]:
    offspring = Offspring()
    command = [sys.executable, "-m", "hangbench.gpu", "--backend", "gloo", "--out", str(folder / "out"), *arguments]
    started = subprocess.Popen(
        command, env={**os.environ, **offspring.mark, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield started, offspring
    finally:
        offspring.end()
        started.communicate()


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        files = ((member.name, packed.extractfile(member)) for member in packed)
        return {name: file.read() for name, file in files if file is not None}


def test_a_case_is_scored_with_all_evidence(tmp_path: Path) -> None:
    with bench(tmp_path, "--limit", "150", "shard_never_comes", "stream_busy") as (started, _):
        output, _ = started.communicate(timeout=400)
    assert "stream_busy: skipped, it needs a card" in output
    files = members(tmp_path / "out" / "gpu.tar.xz")
    (trial,) = msgspec.json.decode(files["gpu/results.json"], type=list[Trial])
    assert (trial.verdict, trial.finding, trial.culprits, trial.problems) == ("hung", "HD202", (1,), []), output
    assert trial.recorder.endswith("equal")
    assert int(trial.recorder.split()[0]) >= 60  # calls of three ranks
    assert b"rank 1" in files["gpu/shard_never_comes/diagnose.txt"]
    expected = ("auto.hangdoc", "native.hangdoc", "dump-0.json", "log", "maps-2.txt", "threads-2.txt", "recorder.txt")
    assert {f"gpu/shard_never_comes/{name}" for name in expected} <= set(files)
    assert started.returncode == 0


def test_an_interrupted_bench_keeps_its_evidence_and_leaves_no_process(tmp_path: Path) -> None:
    with bench(tmp_path, "--at-once", "1", "stopped", "healthy") as (started, offspring):
        until = time.monotonic() + 200
        while not (logs := list(tmp_path.glob("hangbench-gpu-*/stopped/log"))) or "ready" not in logs[0].read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        output, _ = started.communicate(timeout=200)
        while offspring.processes():
            assert time.monotonic() < until + 300
            time.sleep(0.05)
    assert started.returncode == 1
    assert "interrupted" in output
    assert "left out: healthy" in output
    assert b"ready" in members(tmp_path / "out" / "gpu.tar.xz")["gpu/stopped/log"]


def test_the_limit_ends_a_case_that_takes_too_long(tmp_path: Path) -> None:
    with bench(tmp_path, "--at-once", "1", "--limit", "26", "compiles_alone", "healthy") as (started, _):
        output, _ = started.communicate(timeout=200)
    assert "left out: healthy" in output
    assert "gpu/compiles_alone/log" in members(tmp_path / "out" / "gpu.tar.xz")
