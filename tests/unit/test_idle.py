"""Ranks that wait for requests: idle, in the middle of a request that others have left, or cut off from who sends them."""

import pytest

from hangdoc.reasoning.engine import diagnose
from tests.unit.builders import c10d, frame, rank, snapshot

TASKS = frame("Worker.main_loop", 1069, "/site-packages/ray/_private/worker.py")
POLLS = {"syscall": "epoll_wait"}


@pytest.mark.parametrize("patience", [0.0, 30.0])
def test_ranks_without_work_are_idle_whatever_the_patience(patience: float) -> None:
    (job,) = diagnose(snapshot(rank(0, TASKS, kernel=POLLS), rank(1, TASKS, kernel=POLLS)), patience=patience).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.code, finding.severity) == ("waiting", "HD602", "info")
    assert finding.summary == "idle: ranks 0-1 are waiting for requests from the Ray driver"


@pytest.mark.parametrize("operation", ["broadcast", "scatter_object_list"])
def test_who_waits_to_be_told_what_to_do_is_idle_too(operation: str) -> None:
    others = [rank(number, *c10d(operation), frame("serve", 9), world=3) for number in (1, 2)]
    (job,) = diagnose(snapshot(rank(0, TASKS, world=3, kernel=POLLS), *others)).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("waiting", "HD602", (0,))
    assert job.findings[0].summary.startswith("idle: rank 0 is waiting for requests from the Ray driver; ranks 1-2 are")


def test_who_has_left_a_request_in_which_others_wait_is_to_blame() -> None:
    """It caught an error, for example, and went back to wait."""
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("update", 9)), rank(1, TASKS, kernel=POLLS))).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD202", (1,))
    assert "which is waiting for requests from the Ray driver" in finding.summary
    assert "caught the error" in (finding.remedy or "")
