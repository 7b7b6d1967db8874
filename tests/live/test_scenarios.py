"""Each fault of the trainer, for real: started by torchrun, frozen, diagnosed from outside by the command."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from hangbench.case import cases
from hangbench.score import score
from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc_trainer.scenarios import SCENARIOS, Started
from tests.live.needs import each, shares

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))


def hangdoc(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return subprocess.run([HANGDOC, *arguments], capture_output=True, text=True, timeout=400, check=False)


def status(pid: int) -> dict[str, str]:
    """What must be the same after a look: state, tracer, threads, signals."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    kept = {name: fields[name] for name in ("TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")}
    # A running rank is R or S from moment to moment; a stopped one must be T before and after.
    return {**kept, "stopped": str(fields["State"][0] in "Tt")}


def settled(pids: list[int], seconds: float) -> dict[int, dict[str, str]]:
    """The ranks' status once it has stood still for so long: a run that goes on starts threads of its own (rank 0 of
    `long-evaluation` one to read its shard, half a second into it, later on a busy machine)."""
    until = time.monotonic() + 100
    now, since = {pid: status(pid) for pid in pids}, time.monotonic()
    while time.monotonic() - since < seconds and time.monotonic() < until:
        time.sleep(0.2)
        if (later := {pid: status(pid) for pid in pids}) != now:
            now, since = later, time.monotonic()
    return now


def restored(before: dict[int, dict[str, str]]) -> dict[int, dict[str, str]]:
    """The ranks' status once it is as before, or after a minute: another test's look may hold a rank for a moment."""
    until = time.monotonic() + 60
    while (now := {pid: status(pid) for pid in before}) != before and time.monotonic() < until:
        time.sleep(0.1)
    return now


@each(*sorted(SCENARIOS))
def test_the_fault_is_told_right(run: Started, name: str, tmp_path: Path) -> None:
    """Verdict, labels, culprits and leading finding; the ranks as they were; the bundle says the same."""
    scenario, case = SCENARIOS[name], cases()[f"trainer_{name.replace('-', '_')}"]
    bundle = tmp_path / "run.hangdoc"
    before = settled(list(run.rank_pids().values()), 0.5 if scenario.frozen else 6.0)
    # A bare `diagnose` sees every run of the machine, so a test names its own launchers.
    pids = [word for pid in run.pids if Path(f"/proc/{pid}").exists() for word in ("--pid", str(pid))]
    result = hangdoc("diagnose", "--json", "--save", str(bundle), "--patience", str(scenario.patience), *pids)
    after = restored(before)
    if not scenario.frozen:  # threads of its own may end meanwhile; none may be new
        assert all(int(after[pid]["Threads"]) <= int(before[pid]["Threads"]) for pid in before)
        after = {pid: {**after[pid], "Threads": fields["Threads"]} for pid, fields in before.items()}
    diagnosis = msgspec.json.decode(result.stdout, type=Diagnosis)
    judged = score(case, diagnosis, codec.read(bundle))
    assert judged.right, judged.complaints()
    assert result.returncode == (0 if case.control else 1)
    assert result.stderr == ""
    assert before == after
    assert not diagnosis.problems
    replayed = diagnose(codec.read(bundle), patience=scenario.patience)
    assert msgspec.json.encode(replayed) == msgspec.json.encode(diagnosis)


def test_demo_names_the_culprit_and_leaves_nothing() -> None:
    """The README's first command."""
    result = hangdoc("demo")
    assert result.returncode == 1, result.stderr
    assert "HD101 shard-mismatch" in result.stdout
    assert "201" in result.stdout
    assert "culprit   rank 1" in result.stdout


@shares("rank-stops")
def test_snapshot_then_diagnose_elsewhere(run: Started, tmp_path: Path) -> None:
    """`snapshot` on the host, `diagnose BUNDLE` anywhere; `--pid` restricts; a bare diagnose finds the same run."""
    bundle = tmp_path / "host.hangdoc"
    first = hangdoc("snapshot", "-o", str(bundle), "--pid", str(run.pids[0]))
    assert first.returncode == 0, first.stderr
    bare = json.loads(hangdoc("diagnose", "--json", "--patience", "2").stdout)
    stranger = hangdoc("diagnose", "--pid", str(os.getpid() if os.getpid() not in run.pids else 1))
    report = hangdoc("diagnose", str(bundle))
    assert report.returncode == 1
    assert "HD302 rank-stopped" in report.stdout
    assert any(job["findings"] and job["findings"][0]["code"] == "HD302" for job in bare["jobs"])
    assert max(len(line.rstrip()) for line in report.stdout.splitlines()) <= 80
    assert stranger.returncode in (1, 3)
