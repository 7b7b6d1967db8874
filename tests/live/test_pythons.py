"""hangdoc in the oldest Python that it supports and in a newer one than the other tests have (scripts/other-pythons)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc_trainer.scenarios import Started
from tests.live.needs import shares

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
UNITS = (
    "tests/rules", "tests/unit/test_api.py", "tests/unit/test_cli.py", "tests/unit/test_codec.py",
    "tests/unit/test_dumps_command.py", "tests/unit/test_redact.py", "tests/unit/test_regex.py",
    "tests/unit/test_rules.py", "tests/unit/test_runs.py",
)  # fmt: skip
"""What depends on the interpreter and needs no torch: parsing, regular expressions, the reasoning and its texts, the commands."""


@pytest.fixture(params=["3.10", "3.13"])
def python(request: pytest.FixtureRequest) -> str:
    """Another Python, with hangdoc; in CI, too, the test is skipped where the machine has none."""
    path = ROOT / "build" / "pythons" / request.param / "bin" / "python"
    if not path.exists():
        pytest.skip(f"Python {request.param} is not here, or `make setup` has not run")
    return str(path)


def test_unit_tests(python: str) -> None:
    command = [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *UNITS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


@shares("shard-mismatch")
def test_a_frozen_run(python: str, run: Started, tmp_path: Path) -> None:
    """It is found and read as by the Python of the other tests."""
    words = ["-m", "hangdoc", "diagnose", "--json", "--patience", "1", *(f"--pid={pid}" for pid in run.pids)]
    answers = []
    for interpreter in (python, sys.executable):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tui'}"}
        done = subprocess.run(
            [interpreter, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        (job,) = json.loads(done.stdout)["jobs"]
        findings = [(finding["name"], finding["culprits"], finding["remedy"]) for finding in job["findings"]]
        answers.append((done.returncode, job["verdict"], findings, [rank["where"] for rank in job["ranks"]]))
    assert answers[0] == answers[1]
    assert answers[0][2][0][:2] == ("shard-mismatch", [1])
