"""The watchdog in real ranks: what lies there a few seconds after the deadline, and what comes of it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hangbench.case import cases
from hangdoc import beacon, codec
from hangdoc.diagnose.engine import diagnose
from hangdoc_trainer.offspring import Offspring, free_port
from hangdoc_trainer.scenarios import SCENARIOS, Started

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
PROGRAM = Path(__file__).parent / "programs" / "watched.py"


class Watched:
    """A run of the program, its output and the directory of its hang."""

    def __init__(self, folder: Path, log: Path, launcher: subprocess.Popen[bytes]) -> None:
        self.folder, self._log, self.launcher = folder, log, launcher

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, text: str, times: int = 1, seconds: float = 60) -> str:
        """Until the ranks have printed this so often."""
        until = time.monotonic() + seconds
        while len(re.findall(text, self.log())) < times:
            assert time.monotonic() < until, self.log()[-3000:]
            time.sleep(0.05)
        return self.log()

    def hang(self) -> Path:
        """The directory of its only hang."""
        (found,) = self.folder.glob("hangdoc-*")
        return found


@contextmanager
def watched(tmp_path: Path, mode: str, on_hang: str = "report", *options: str) -> Iterator[Watched]:
    offspring = Offspring()
    environment = {**os.environ, **offspring.mark, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    (tmp_path / "runtime").mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}",
               "--monitor-interval=0.2", *options, str(PROGRAM), mode, on_hang]  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as out:
        launcher = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield Watched(tmp_path, log, launcher)
    finally:
        offspring.end()
        launcher.wait()


@pytest.mark.parametrize(
    ("mode", "code"), [("sleep", "HD202 missing-rank"), ("stop", "HD302 rank-stopped"), ("gil", "HD304 lock-deadlock")]
)
def test_evidence_of_every_rank_and_a_verdict_within_seconds(mode: str, code: str, tmp_path: Path) -> None:
    with watched(tmp_path, mode) as run:
        run.wait_for("no progress for")
        expired = time.monotonic()
        log = run.wait_for("the whole report: hangdoc diagnose")
        took = time.monotonic() - expired
        folder = run.hang()
        alive = run.launcher.poll() is None
    assert alive  # report: it goes on waiting
    assert took < 15  # on an idle machine 2 to 3 s; docs/watchdog.md
    assert f"error {code}" in log
    assert re.search(r"culprit\s+rank 1\b", log)
    (bundle,) = folder.glob("host-*.hangdoc")
    # Rank 1's wait was young: with the patience of the report the bundle says the same as the log.
    found = diagnose(codec.read(bundle), patience=1)
    assert [(found.verdict, job.findings[0].code) for job in found.jobs] == [("hung", code.split()[0])]
    dumped = {path.name for path in folder.glob("rank-*.stacks.txt")}
    # A stopped rank dumps nothing; one that keeps the GIL does, from a thread that needs none.
    assert dumped == ({"rank-0.stacks.txt"} if mode == "stop" else {"rank-0.stacks.txt", "rank-1.stacks.txt"})
    if mode != "sleep":
        assert "rank 1 (pid" in log
        assert "could not dump its own stacks" in log
    if mode == "gil":
        assert "go_wrong" in (folder / "rank-1.stacks.txt").read_text()
    again = subprocess.run([sys.executable, "-m", "hangdoc", "diagnose", "--patience", "1", str(folder)],
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert again.returncode == 1
    assert code in again.stdout


def test_a_run_that_moves_on_is_reported_and_fires_once(tmp_path: Path) -> None:
    with watched(tmp_path, "pause") as run:
        log = run.wait_for("is through", 2)
    assert len(re.findall("no progress for", log)) <= 2  # once a rank
    assert len(list(tmp_path.glob("hangdoc-*"))) == 1
    assert re.search(r"moves again after \d+ s", log)
    assert not list((tmp_path / "runtime" / "hangdoc").glob("*.beacon"))


def test_a_phase_with_a_patience_of_its_own_is_no_hang(tmp_path: Path) -> None:
    with watched(tmp_path, "phase") as run:
        log = run.wait_for("is through", 2)
    assert "no progress" not in log
    assert not list(tmp_path.glob("hangdoc-*"))


def test_abort_makes_torchrun_restart(tmp_path: Path) -> None:
    with watched(tmp_path, "sleep", "abort", "--max-restarts=1") as run:
        log = run.wait_for("is through", 2, 90)
        assert run.launcher.wait(30) == 0
    assert "ending the process with code 86" in log
    assert "HD202 missing-rank" in log


def test_raise_reaches_the_main_thread_that_runs_python(tmp_path: Path) -> None:
    with watched(tmp_path, "pause", "raise") as run:
        log = run.wait_for(r"rank 1 was told of the hang")
    assert "no progress" in log


def test_a_stopped_rank_is_still_stopped(tmp_path: Path) -> None:
    with watched(tmp_path, "stop") as run:
        run.wait_for("the whole report")
        pid = int(re.findall(r"pid of rank 1 is (\d+)", run.log())[0])
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        beat = beacon.parse((tmp_path / "runtime" / "hangdoc" / f"{pid}.beacon").read_bytes())
    assert beat is not None
    assert (beat.rank, beat.world_size, beat.batches_done, beat.batches_total) == (1, 2, 20, 60)


@pytest.mark.parametrize("name", ["shard-mismatch", "skipped-collective", "stuck-dataloader-worker", "rank-stops"])
def test_a_trainers_fault_is_told_in_its_own_log(name: str) -> None:
    """The same finding that `hangdoc diagnose` makes of it from outside."""
    scenario = SCENARIOS[name]
    truth = cases()[f"trainer_{name.replace('-', '_')}"]
    with Started(replace(scenario, arguments=(*scenario.arguments, "--watchdog", "3"))) as run:
        until = time.monotonic() + 40
        while "hangdoc[rank 0] the whole report" not in run.log():
            assert time.monotonic() < until, run.log()[-2000:]
            time.sleep(0.1)
        log = run.log()
    assert re.search(rf"hangdoc\[rank 0\] error {truth.finding} ", log)
    assert re.search(rf"hangdoc\[rank 0\]\s+culprit\s+rank {truth.culprits[0]}\b", log)
