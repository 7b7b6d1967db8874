"""The watchdog beside another job, started as most people do: `torchrun --nproc-per-node 2 train.py`, without any address."""

import sys
from pathlib import Path

import pytest

from hangdoc import codec
from hangdoc.reasoning.engine import diagnose
from tests.live.needs import shares
from tests.live.watched import PROGRAMS, running

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("run"), shares("shard-mismatch")]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")


@pytest.mark.parametrize("beacons", ["of both ranks", "of one rank"])
def test_the_report_is_of_the_watchdogs_own_run(beacons: str, tmp_path: Path) -> None:
    """The other job is hung as well, with another finding: HD101. A rank without a beacon is found by the run's name."""
    hidden = {"HIDE_BEACON_OF": "1"} if beacons == "of one rank" else {}
    program = str(PROGRAMS / "watched.py")
    with running(tmp_path, *TORCHRUN, program, "sleep", "report", **hidden) as watched:
        log = watched.wait_for("full report: hangdoc diagnose", 1 if hidden else 2)
        (bundle,) = watched.hang().glob("host-*.hangdoc")
        found = diagnose(codec.read(bundle), patience=1)
    assert "HD101" not in log
    assert "error HD202 missing-rank" in log
    (job,) = found.jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD202", (1,))
    assert [(rank.rank, rank.label) for rank in job.ranks] == [(0, "blocked"), (1, "blocked")]
