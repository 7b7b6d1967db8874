"""The watchdog in real ranks: what lies there a few seconds after the deadline, and what comes of it."""

import re
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from hangbench.case import cases
from hangdoc import beacon, codec
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import FlightRecorder, Progress
from hangdoc_trainer import corpus
from hangdoc_trainer.offspring import free_port
from hangdoc_trainer.scenarios import SCENARIOS, SMALL, Started
from tests.live.needs import needs
from tests.live.watched import Watched, running, under_torchrun, watched

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]


@pytest.mark.parametrize(
    ("mode", "code"), [("sleep", "HD202 missing-rank"), ("stop", "HD302 rank-stopped"), ("gil", "HD304 lock-deadlock")]
)
def test_evidence_of_every_rank_and_a_verdict_within_seconds(mode: str, code: str, tmp_path: Path) -> None:
    with watched(tmp_path, mode) as run:
        run.wait_for("no progress for")
        expired = time.monotonic()
        log = run.wait_for("full report: hangdoc diagnose")
        took = time.monotonic() - expired
        folder = run.hang()
        alive = run.launcher.poll() is None
        if mode == "stop":
            the_stopped_rank_is_still_stopped(run.log(), tmp_path)
    assert alive  # report: it goes on waiting
    assert took < 45  # on an idle machine 2 to 3 s; docs/watchdog.md
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


def the_stopped_rank_is_still_stopped(log: str, folder: Path) -> None:
    """After the look, and its beacon is as it left it."""
    pid = int(re.findall(r"pid of rank 1 is (\d+)", log)[0])
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    beat = beacon.parse((folder / "runtime" / "hangdoc" / f"{pid}.beacon").read_bytes())
    assert beat is not None
    assert (beat.rank, beat.world_size, beat.batches_done, beat.batches_total) == (1, 2, 20, 60)


def test_a_run_that_moves_on_is_reported_and_fires_once(tmp_path: Path) -> None:
    with watched(tmp_path, "pause") as run:
        run.wait_for("full report")
        run.go_on()
        log = run.wait_for("is through", 2)
    assert len(re.findall("no progress for", log)) <= 2  # once a rank
    assert len(list(tmp_path.glob("hangdoc-*"))) == 1
    assert re.search(r"makes progress again after \d+ s", log)
    assert not list((tmp_path / "runtime" / "hangdoc").glob("*.beacon"))


def test_a_phase_with_a_patience_of_its_own_is_no_hang(tmp_path: Path) -> None:
    with watched(tmp_path, "phase") as run:
        log = run.wait_for("is through", 2)
    assert "no progress" not in log
    assert not list(tmp_path.glob("hangdoc-*"))


def test_abort_makes_torchrun_restart_and_the_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    corpus.make(tmp_path / "shards", 20, groups=2, rows=1, size=300)
    command = (
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}",
        "--monitor-interval=0.2", "--max-restarts=2", "-m", "hangdoc_trainer.base_train", "--", *SMALL,
        "--num-iterations=12", "--log-every=1", "--save-every=2", "--checkpoint-dir=saved", "--resume",
        "--fault=endless-loop:1:5", "--watchdog=10", "--on-hang=abort",
    )  # fmt: skip
    with running(tmp_path, *command, NANOCHAT_DATA_DIR=str(tmp_path / "shards")) as run:
        log = run.wait_for("evaluation at the end")
        assert run.launcher.wait(100) == 0
    assert "ending the process with code 86" in log
    assert "HD202 missing-rank" in log
    steps = [int(step) for step in re.findall(r"^step\s+(\d+) ", log, re.M)]
    assert steps == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11]  # the checkpoint was that of four steps


def test_raise_reaches_the_main_thread_that_runs_python(tmp_path: Path) -> None:
    with watched(tmp_path, "pause", "raise") as run:
        log = run.wait_for(r"rank 1 was told of the hang")
    assert "no progress" in log


def test_a_dead_rank_is_reported_in_the_survivors_log() -> None:
    """The same finding that `hangdoc diagnose` makes of it from outside."""
    scenario, truth = SCENARIOS["rank-dies"], cases()["trainer_rank_dies"]
    with Started(replace(scenario, arguments=(*scenario.arguments, "--watchdog", "10"))) as run:
        until = time.monotonic() + 150
        while "hangdoc[rank 0] full report" not in run.log():
            assert time.monotonic() < until, run.log()[-2000:]
            time.sleep(0.1)
        log = run.log()
    assert re.search(rf"hangdoc\[rank 0\] error {truth.finding} ", log)
    assert re.search(rf"hangdoc\[rank 0\]\s+culprit\s+rank {truth.culprits[0]}\b", log)


@pytest.mark.parametrize(
    ("program", "batches"),
    [("with_ddp.py", None), ("with_accelerate.py", (9, 50)), ("with_lightning.py", (9, 50)),
     ("with_transformers.py", (9, 150))],
)  # fmt: skip
def test_a_framework_brings_the_watchdog_along(program: str, batches: tuple[int, int] | None, tmp_path: Path) -> None:
    with under_torchrun(tmp_path, program) as run:
        log = run.wait_for("full report: hangdoc diagnose", 2)
        (bundle,) = run.hang().glob("host-*.hangdoc")
    assert "error HD202 missing-rank" in log
    assert re.search(r"rank 0 is waiting in all_reduce .* for rank 1, which is sleeping", log)
    ranks = [p for p in codec.read(bundle).hosts[0].processes if p.role == "rank"]
    beacons = [p.progress.beacon for p in ranks if isinstance(p.progress, Progress)]
    assert [(b.step, b.phase) for b in beacons if b is not None] == [(9, "train")] * 2
    assert {(b.batches_done, b.batches_total) for b in beacons if b is not None} == {batches or (None, None)}
    if program in ("with_ddp.py", "with_accelerate.py"):  # whose hooks find the stages
        assert all(len(b.stages) == 4 and all(0 < s < 1 for s in b.stages) for b in beacons if b is not None)
    recorders = [p.recorder for p in ranks]
    issued = [r.groups[0].issued for r in recorders if isinstance(r, FlightRecorder)]
    assert len(issued) == 2
    assert (issued[0] or 0) > (issued[1] or 0)  # rank 1 never came to the all-reduce that rank 0 is in


def test_the_call_reaches_another_host(tmp_path: Path) -> None:
    """Two hosts by name, with directories and beacons of their own: only the run's store is between them."""
    needs("root", "unshare")
    port = free_port()

    def host(name: str, number: int) -> AbstractContextManager[Watched]:
        return under_torchrun(tmp_path / name, "two_hosts.py", options=("--nnodes=2", f"--node-rank={number}",
            "--nproc-per-node=1", "--master-addr=127.0.0.1"), port=port, GLOO_SOCKET_IFNAME="lo",
            around=("unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"))  # fmt: skip

    with host("node-a", 0) as one, host("node-b", 1) as other:
        logs = [run.wait_for("full report: hangdoc diagnose") for run in (one, other)]
        folders = [run.hang() for run in (one, other)]
    assert folders[0].name == folders[1].name
    for log in logs:
        assert "error HD202 missing-rank" in log
        assert re.search(r"culprit\s+rank 1\b", log)
    assert "no progress" in logs[0]
    assert "no progress" not in logs[1]  # its own patience was longer: it was called
    assert {path.name for path in folders[0].glob("*.hangdoc")} == {"host-node-a.hangdoc", "host-node-b.hangdoc"}
    assert {path.name for path in folders[1].glob("rank-*")} == {"rank-1.stacks.txt", "rank-1.flight.json"}
    assert (folders[0] / "report.txt").read_bytes() == (folders[1] / "report.txt").read_bytes()
    assert sum("HD" in page.read_text() for folder in folders for page in folder.glob("report.html")) == 1
    assert (
        "has made 20 calls in the default group, the last one an all_reduce"
        in logs[0] + (folders[0] / "report.txt").read_text()
    )


def test_a_phase_on_another_host_is_no_hang(tmp_path: Path) -> None:
    port = free_port()

    def host(name: str, number: int) -> AbstractContextManager[Watched]:
        return under_torchrun(tmp_path / name, "two_hosts.py", "phase", options=("--nnodes=2", f"--node-rank={number}",
            "--nproc-per-node=1", "--master-addr=127.0.0.1"), port=port, GLOO_SOCKET_IFNAME="lo")  # fmt: skip

    with host("node-a", 0) as one, host("node-b", 1) as other:
        logs = [run.wait_for("is through") for run in (one, other)]
    assert not any("no progress" in log for log in logs)
