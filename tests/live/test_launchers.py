"""Every cheap launcher at once on one host, some runs hung and some healthy: each run is one job, with its own verdict."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hangbench.launchers.scene import Outcome
from hangbench.launchers.table import TABLE, Launcher

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
ROOT = Path(__file__).parents[2]
IN_CI = [launcher for launcher in TABLE if launcher.in_ci]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """What was said of all runs: all healthy, then every second one hung, then all of them. They are started once."""
    if os.geteuid() != 0:
        pytest.skip("the launchers need namespaces of their own: run the tests as root")
    file = tmp_path_factory.mktemp("launchers") / "outcomes"
    command = [sys.executable, "-m", "hangbench.launchers", "--ci", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return msgspec.json.Decoder(Outcome).decode_lines(file.read_bytes())


@pytest.mark.parametrize("launcher", IN_CI, ids=lambda launcher: launcher.name)
def test_a_run_is_one_job_with_its_own_verdict(launcher: Launcher, outcomes: list[Outcome]) -> None:
    if not launcher.here:
        message = f"{launcher.program} is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    mine = [outcome for outcome in outcomes if outcome.launcher == launcher.name]
    assert {"host", "pid"} <= {outcome.kind for outcome in mine}
    assert {"healthy", "uneven"} <= {o.state for o in mine} or {"healthy", "stopped"} <= {o.state for o in mine}
    assert [(o.state, o.kind, line) for o in mine for line in o.wrong] == []


def test_some_of_them_had_a_watchdog_that_fired(outcomes: list[Outcome]) -> None:
    fired = {o.launcher for o in outcomes if o.kind == "watchdog" and o.state != "healthy" and o.said}
    assert "torchrun" in fired
    assert len(fired) >= 3
