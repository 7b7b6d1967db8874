"""Calls that libraries make: in the handler of a signal, and for each metric that was logged."""

from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.rules import hd105_left_loop_early
from hangdoc.reasoning.text.next_steps import WithRemedy
from hangdoc.snapshot import Frame, Loop, Process
from tests.unit.builders import c10d, frame, local, rank, snapshot, stack, train

SIGNAL, FRAME = local("signum", 15), local("_", "<frame at 0x7f0b6ff48a40>")
HANDLED = frame(
    "Preemption.notify", 118, "/site-packages/lightning/signals.py", locals=(local("self", "<P>"), SIGNAL, FRAME)
)
OF_OBJECT = frame("Metrics.show", 9, locals=(local("s", "<Metrics>"), local("a", "(15, <frame at 0x7f0b6ff48a40>)")))
CALLED = frame("Preemption.notify", 118, "/site-packages/lightning/signals.py", locals=(SIGNAL,))
LATER = frame("log_once", 9, locals=(local("text", "'x'"), SIGNAL, FRAME))
SELECT = frame(
    "_PollLikeSelector.select", 415, "/lib/python3.11/selectors.py", library=True, source="self._selector.poll(timeout)"
)
CALLS = frame("train", 12, source="self.preemption.notify(15, frame)")


@pytest.mark.parametrize(
    ("handler", "below", "named"),
    [
        (HANDLED, SELECT, True),
        (OF_OBJECT, SELECT, True),  # `def show(s, *a)`
        (CALLED, SELECT, False),
        (LATER, SELECT, False),  # a number and a frame that are no arguments
        (HANDLED, CALLS, False),  # the program calls it
    ],
)
def test_a_call_of_a_signals_handler_says_which_signal(handler: Frame, below: Frame, named: bool) -> None:
    """One rank of two was preempted. The frames below the handler are those that it interrupted, not those that call it."""
    interrupted = rank(1, *c10d("broadcast"), handler, below, train(12))
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), train(15)), interrupted)).jobs
    finding = job.findings[0]
    assert ("which the handler of SIGTERM calls" in finding.summary) is named
    if named:
        assert (finding.code, finding.culprits, finding.victims) == ("HD201", (1,), (0,))
        texts = [each.text for each in finding.evidence]
        at = "me/train.py:9" if handler is OF_OBJECT else "lightning/signals.py:118"
        handles = f"{handler.function} ({at}) handles SIGTERM, which interrupted"
        assert f"{handles} _PollLikeSelector.select" in texts
        assert finding.remedy.startswith("In a handler, only set a flag")


@pytest.mark.parametrize(
    "other",
    [
        rank(0, frame("save", 30), HANDLED, SELECT, train(12), cpu=0.9),  # it does its part in its handler
        rank(0, train(12), cpu=0.9),  # Python runs its handler after the C call that it is in
        rank(0, state="Z", exit_code=9),
    ],
)
def test_a_rank_that_does_not_wait_in_a_call_may_come_to_the_handler(other: Process) -> None:
    """A trainer saves a checkpoint on SIGUSR1: the other ranks wait in the barrier of their handlers."""
    waits = rank(1, *c10d("barrier"), HANDLED, SELECT, train(12))
    (job,) = diagnose(snapshot(other, waits, silence=3.0)).jobs
    assert not any("SIGTERM" in finding.summary for finding in job.findings)
    assert job.verdict == ("hung" if other.state == "Z" else "waiting")


def test_a_handler_that_all_ranks_are_in_explains_nothing() -> None:
    ranks = [rank(n, *c10d(op), HANDLED, SELECT, train(12)) for n, op in enumerate(("broadcast", "barrier"))]
    (job,) = diagnose(snapshot(*ranks)).jobs
    assert "SIGTERM" not in job.findings[0].summary


@pytest.mark.parametrize(
    ("package", "named"), [("lightning/pytorch", True), ("pytorch_lightning", True), ("mine", False)]
)
def test_the_rounds_of_lightnings_loop_over_metrics_are_no_batches(package: str, named: bool) -> None:
    """One rank had not logged the metric that the other reduces."""
    loop = Loop(line=473, end_line=476, header="for (_, metric) in self.valid_items()")
    file = f"/site-packages/{package}/trainer/connectors/logger_connector/result.py"
    reduces = frame("_ResultCollection.metrics", 475, file, loops=(loop,))
    thread = stack(*c10d("all_reduce"), reduces, frame("fit", 65)).threads[0]
    kind: Any = SimpleNamespace(loop=loop, inside=SimpleNamespace(first=SimpleNamespace(rank=0, thread=thread)))
    remedies = [each.remedy for each in hd105_left_loop_early._logged_metrics(kind) if isinstance(each, WithRemedy)]
    assert [remedy[:35] for remedy in remedies] == (["Log the same metrics on every rank:"] if named else [])
