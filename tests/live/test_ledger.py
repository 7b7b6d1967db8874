"""What the calls of real ranks show: a call that was skipped long before the hang, ranks with roles, a rank that is late."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdoc.diagnosis import Job
from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose
from tests.live.watched import under_torchrun

pytestmark = pytest.mark.usefixtures("can_attach")


@contextmanager
def looked_at(folder: Path, mode: str, ready: int) -> Iterator[tuple[int, ...]]:
    """The launcher's pid of four ranks that have come to the end of their steps."""
    with under_torchrun(folder, "calls.py", mode, options=("--nproc-per-node=4",), OMP_NUM_THREADS="1") as run:
        run.wait_for("ready", ready)
        yield (run.launcher.pid,)


def job_of(pids: tuple[int, ...]) -> Job:
    (job,) = diagnose(observe(Options(pids=pids, window=1.0))).jobs
    return job


def frozen(folder: Path, mode: str, code: str) -> Job:
    """The diagnosis once all ranks stand still: between `ready` and the call there is a moment."""
    with looked_at(folder, mode, 4) as pids:
        for _ in range(20):
            job = job_of(pids)
            if job.verdict == "hung" and job.findings[0].code == code:
                break
        return job


def test_a_call_that_was_skipped_thirty_steps_before_the_hang(tmp_path: Path) -> None:
    job = frozen(tmp_path, "skips", "HD207")
    finding = job.findings[0]
    assert (finding.code, finding.culprits, finding.victims) == ("HD207", (1,), (0, 2, 3))
    difference = finding.first_difference
    assert difference is not None
    assert (difference.number, difference.shift, difference.calls_ago, difference.steps_ago) == (204, 1, 146, 29)
    functions = [call.where.function for call in (difference.call, difference.others_call) if call.where is not None]
    assert functions == ["log_stats", "sync_grads"]
    assert "rank 1" in finding.summary
    assert job.ends_by_itself_in_seconds is not None
    assert 1700 < job.ends_by_itself_in_seconds < 1800
    calls = {view.rank: (view.calls[0].made, view.calls[0].pending, view.calls[0].source) for view in job.ranks}
    assert calls == dict.fromkeys(range(4), (350, 350, "recorder"))


def test_lines_that_depend_on_the_rank_are_no_difference(tmp_path: Path) -> None:
    job = frozen(tmp_path, "roles", "HD105")
    assert job.verdict == "hung"
    assert "HD207" not in {finding.code for finding in job.findings}
    assert job.findings[0].culprits == (1,)
    assert "number 350" in job.findings[0].evidence[0].text


def test_a_rank_that_is_fifty_milliseconds_late(tmp_path: Path) -> None:
    with looked_at(tmp_path, "late", 4) as pids:
        job = job_of(pids)
    assert job.verdict == "healthy"
    assert job.pace is not None
    assert job.pace.slowest == 2
    assert job.pace.late_seconds is not None
    assert 0.04 < job.pace.late_seconds < 0.15
    (finding,) = (finding for finding in job.findings if finding.code == "HD601")
    assert finding.culprits == (2,)
    assert finding.evidence[0].probe == "recorder"
