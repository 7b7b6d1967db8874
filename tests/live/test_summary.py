"""The summary of a frozen run: of the ranks that wait alike, the evidence of one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import many_ranks
from hangdoc import codec
from hangdoc.reasoning.engine import diagnose
from hangdoc_trainer.offspring import free_port

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[int]:
    """The pid of the parent of three ranks: rank 1 is in a barrier, the others in an all-reduce."""
    command = [sys.executable, many_ranks.__file__, "3", "frozen", str(tmp_path), str(free_port())]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            yield parent.pid
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_summary_of_a_frozen_run(tmp_path: Path, frozen: int) -> None:
    bundle = tmp_path / "short.hangdoc"
    command = [sys.executable, "-m", "hangdoc", "snapshot", "--summary", "-o", str(bundle), "--pid", str(frozen)]
    subprocess.run(command, check=True, timeout=200)
    (job,) = diagnose(codec.read(bundle), patience=0.0).jobs
    assert (job.verdict, job.findings[0].culprits) == ("hung", (1,))
    assert [view.like for view in job.ranks] == [None, None, 0]
    assert job.ranks[2].state == "in-collective"
    assert job.ranks[2].cpu_percent is not None
