"""Polls of real runs: a frozen one is left alone, a healthy one is never said to hang, one that freezes is named at once."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.look.polling import Polling
from hangdoc.observe.stacks import pyspy
from hangdoc.reasoning.engine import diagnose
from hangdoc_trainer.offspring import free_port
from hangdoc_trainer.scenarios import SCENARIOS, Node, Scenario, Started
from tests.live.needs import each, shares
from tests.live.watched import PROGRAMS

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_PATIENCE = 2.0
_QUIET = 20
"""Polls in a row without an attach. Before them all that stands still is read, its C++ frames too."""
_NAMED = 8
"""Polls in a row that name a hang. Those before do not know yet for how long the run has been silent."""
_LATE = 10
"""Polls that may be taken when `diagnose` has named a hang, before one of them does."""
_MANY = 400
"""More polls than any state takes to come, also on a busy machine. Only a test that fails takes so many, or its whole time."""
_FREEZES = Scenario(
    "freezes", "two nodes with the same shards; rank 1 skips a broadcast after a while", (Node(ranks=2),),
    ("--num-iterations", "100000", "--fault", "skipped-collective:1:400"), frozen=False,
)  # fmt: skip


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Pids that py-spy was started for, in this process."""
    pids: list[int] = []
    real = pyspy.dump

    def counted(pid: int, *words: object, **options: object) -> object:
        pids.append(pid)
        return real(pid, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pyspy, "dump", counted)
    return pids


def story(found: Diagnosis) -> tuple[str, str, tuple[int, ...]]:
    (job,) = found.jobs
    first = next(iter(job.findings), None)
    return job.verdict, first.code if first is not None else "", first.culprits if first is not None else ()


def polls(run: Started, count: int, every: float) -> Iterator[Diagnosis]:
    polling = Polling(Options(pids=run.pids, window=0.3))
    try:
        for _ in range(count):
            began = time.monotonic()
            yield diagnose(polling.look(), patience=_PATIENCE)
            time.sleep(max(0.0, began + every - time.monotonic()))
    finally:
        polling.close()


@each("shard-mismatch", "rank-stops", "rank-dies")
def test_who_stands_still_is_not_read_again(run: Started, attached: list[int], name: str) -> None:
    once = story(diagnose(observe(Options(pids=run.pids)), patience=_PATIENCE))
    assert once[0] == "hung"
    quiet, at = 0, []
    for number, found in enumerate(polls(run, _MANY, 0.4)):
        assert story(found) == once
        assert all(view.stack_seconds_ago in (0.0, None) for view in found.jobs[0].ranks)
        quiet = 0 if attached else quiet + 1
        if quiet == _QUIET:
            return
        at += [(number, pid) for pid in attached]
        del attached[:]
    raise AssertionError(f"ranks {run.rank_pids()} that stand still are read again: (poll, pid) {at}")


@shares("healthy")
def test_a_healthy_run_never_hangs(run: Started, attached: list[int]) -> None:
    ages: list[float] = []
    began = time.monotonic()
    for found in polls(run, 60, 0.5):
        assert found.verdict in ("healthy", "waiting"), found
        ages += [view.stack_seconds_ago or 0.0 for view in found.jobs[0].ranks]
    length = time.monotonic() - began
    assert max(ages) < max(30.0, length / 2)  # each is read in its turn
    assert any(ages)  # and not at every poll
    assert len(attached) < 4 + 2 * length


@each("endless-loop", "empty-shards", "stuck-dataloader-worker")
def test_what_moves_and_yet_hangs_is_named_at_every_poll(run: Started, name: str) -> None:
    """Where a rank polls or spins, and nothing passes between the ranks any more, all that moves is read each time."""
    once = story(diagnose(observe(Options(pids=run.pids)), patience=_PATIENCE))
    assert once[0] == "hung"
    named = 0
    said = []
    for found in polls(run, _MANY, 0.5):
        said.append(story(found))
        named = named + 1 if said[-1] == once else 0
        if named == _NAMED:
            return
    raise AssertionError(said)


@shares("long-evaluation")
def test_a_rank_that_is_busy_alone_is_waited_for(run: Started) -> None:
    verdicts = {found.verdict for found in polls(run, 16, 0.5)}
    assert verdicts == {"waiting"}


def test_a_freeze_is_named_as_soon_as_diagnose_names_it() -> None:
    """Beside a diagnose again and again, whose pauses the polls must not take for movement of the run."""
    said: list[tuple[str, str, tuple[int, ...]]] = []
    over = threading.Event()

    def again_and_again() -> None:
        while not over.is_set() and not said:
            found = story(diagnose(observe(Options(pids=run.pids, native="never")), patience=_PATIENCE))
            if found[0] == "hung":
                said.append(found)

    with Started(_FREEZES) as run:
        beside = threading.Thread(target=again_and_again)
        beside.start()
        try:
            late = 0
            for found in polls(run, _MANY, 0.5):
                named = story(found)
                if named[0] == "hung":
                    break
                late += len(said)
            beside.join(100)
        finally:
            over.set()
            beside.join()
    assert [named] == said
    assert late <= _LATE


def test_a_new_rank_appears_and_one_that_is_gone_is_missed() -> None:
    """A run that starts while it is looked for, and ends."""
    polling = Polling(Options(window=0.3, pids=(os.getpid(),)))

    def seen() -> set[int | None]:
        return {view.pid for job in diagnose(polling.look()).jobs for view in job.ranks if view.label is not None}

    seen()
    with Started(SCENARIOS["healthy"]) as run:
        ranks: set[int | None] = set(run.rank_pids().values())
        until = time.monotonic() + 100
        while not ranks <= seen():
            assert time.monotonic() < until
    until = time.monotonic() + 100
    while ranks & seen():
        assert time.monotonic() < until
    polling.close()


@pytest.mark.parametrize(("how", "rests"), [("calls", True), ("waits", False)])
def test_a_helper_that_no_rank_needs_may_run_between_two_polls(how: str, rests: bool) -> None:
    """As the process that sends the metrics of a run does. Each poll of such a frozen run was a whole one."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*launch, str(PROGRAMS / "helped.py"), how], env=environment) as launcher:
        polling = Polling(Options(pids=(launcher.pid,), window=0.3))
        confirmed: list[bool | None] = []
        try:
            until = time.monotonic() + 200
            while True not in confirmed and len(confirmed) < _QUIET:
                assert time.monotonic() < until
                snapshot = polling.look()
                time.sleep(0.2)  # in which the helpers run
                helpers = [each for host in snapshot.hosts for each in host.processes if each.role == "helper"]
                if len(helpers) == 2 and diagnose(snapshot, patience=_PATIENCE).verdict in ("hung", "waiting"):
                    confirmed.append(polling.confirms())
        finally:
            polling.close()
            launcher.terminate()  # it ends its ranks, and they their workers
    assert (True in confirmed) is rests
