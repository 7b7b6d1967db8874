"""Every cheap launcher at once on one host, some runs hung and some healthy: each run is one job, with its own verdict."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from hangbench.launchers.round import Outcome
from hangbench.launchers.table import TABLE

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_a_run_is_one_job_with_its_own_verdict() -> None:
    """By host, by pid and by watchdog, in three rounds: all healthy, every second one hung, all hung. One start for all: the
    runs are the company in which each of them must be told apart."""
    if os.geteuid() != 0:
        pytest.skip("the launchers need namespaces of their own: run the tests as root")
    command = [sys.executable, "-m", "hangbench.launchers", "--ci", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    outcomes = msgspec.json.Decoder(Outcome).decode_lines(done.stdout)
    assert outcomes, done.stderr[-3000:]
    assert [outcome for outcome in outcomes if outcome.wrong] == []
    looks: defaultdict[str, set[tuple[str, bool]]] = defaultdict(set)
    for outcome in outcomes:
        looks[outcome.launcher].add((outcome.kind, outcome.state == "healthy"))
    for launcher in TABLE:
        if launcher.in_ci and launcher.here:
            assert {("host", True), ("host", False)} <= looks[launcher.name]
            assert {("pid", True), ("pid", False)} & looks[launcher.name]
    watched = {name for name, kinds in looks.items() if ("watchdog", False) in kinds}
    assert {"torchrun", "torchrun --master-addr", "mp.spawn", "Fabric"} <= watched
    missing = [launcher.program for launcher in TABLE if launcher.in_ci and not launcher.here]
    if missing:
        pytest.skip(f"right for all but those that are not installed: {', '.join(missing)}")
