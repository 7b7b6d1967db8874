"""Runs with parts, as trainers and rollouts: default groups of their own, and groups that span two runs."""

import pytest

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Frame, Group, Interpreter, Process
from tests.unit.builders import c10d, frame, local, rank, snapshot

TASKS = frame("Worker.main_loop", 1069, "/site-packages/ray/_private/worker.py")
HANDLER = frame("_tcp_rendezvous_handler", 230, "/site-packages/torch/distributed/rendezvous.py")


def member(number: int, *frames: Frame, default: tuple[int, ...], weights: tuple[int, ...] = ()) -> Process:
    """A rank with a default group and, with `weights`, a group for new weights."""
    groups = [Group(address=10, name="0", ranks=default, default=True)]
    if weights:
        groups.append(Group(address=20, name="weights", ranks=weights))
    idle = frames == (TASKS,)
    return rank(
        number, *frames, world=3, kernel={"syscall": "epoll_wait"} if idle else None,
        interpreter=Interpreter(environment={}, globals=(), groups=tuple(groups)),
    )  # fmt: skip


def job(*processes: Process) -> Job:
    (only,) = diagnose(snapshot(*processes, silence=600.0)).jobs
    return only


def test_nobody_waits_for_a_rank_of_another_part() -> None:
    """A trainer left a step and is idle; the rollout, which is idle too, is no member of the trainers' group."""
    trainers, rollout = (0, 1), (0, 1, 2)
    call = (*c10d("all_reduce"), frame("step", 5))
    finding = job(
        member(0, *call, default=trainers), member(1, TASKS, default=trainers), member(2, TASKS, default=rollout)
    ).findings[0]
    assert (finding.code, finding.culprits, finding.victims) == ("HD202", (1,), (0,))


@pytest.mark.parametrize(
    "call",
    [(*c10d("broadcast", local("group", "<ProcessGroup>", address=20)), frame("send_weights", 5)), (HANDLER,)],
    ids=["in the group", "in its rendezvous"],
)
def test_a_group_between_two_runs_blames_no_rank_of_this_run(call: tuple[Frame, ...]) -> None:
    """It numbers its members otherwise: its rank 1 is a rollout, and not the trainer that waits in a barrier."""
    weights = (0, 1, 2) if call != (HANDLER,) else ()
    first = member(0, *call, default=(0, 1), weights=weights)
    second = member(1, *c10d("barrier"), frame("main", 9), default=(0, 1))
    found = job(first, second)
    finding = found.findings[0]
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD901", ())
    assert "which needs processes outside of this run" in finding.summary
