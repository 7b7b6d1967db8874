"""A run that moves by its own record: it is never paused, what happened before hangdoc came is shown, and a freeze is named."""

import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.look.polling import Polling
from hangdoc.observe.stacks import pyspy
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.views.past import past_cells, timelines
from hangdoc.snapshot import Stack
from tests.live.watched import Watched, under_torchrun

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_PATIENCE = 2.0
_POLLS = 15


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids that a py-spy of this process has paused."""
    paused: list[int] = []
    real = pyspy.dump

    def counted(pid: int, *words: object, **options: object) -> object:
        if options["paused"]:
            paused.append(pid)
        return real(pid, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pyspy, "dump", counted)
    return paused


def only(diagnosis: Diagnosis) -> Job:
    (job,) = diagnosis.jobs
    return job


def freeze(run: Watched, polling: Polling) -> tuple[Job, float]:
    """The job once it is said to hang, and after how many seconds."""
    run.go_on()
    began = time.monotonic()
    while True:
        job = only(diagnose(polling.look(), patience=_PATIENCE))
        if job.verdict == "hung":
            return job, time.monotonic() - began
        assert time.monotonic() < began + 200, job
        time.sleep(0.2)


def test_a_run_that_moves_is_not_paused_and_its_freeze_is_named(tmp_path: Path, paused: list[int]) -> None:
    with under_torchrun(tmp_path, "steady.py", options=("--nproc-per-node=4",)) as run:
        run.wait_for("goes on", 4)
        polling = Polling(Options(pids=(run.launcher.pid,), window=0.4))
        try:
            diagnosis, (first,) = examine(polling.look(), patience=_PATIENCE)
            before = past_cells(first)
            assert before is not None
            assert -before.seconds[0] > 1.0  # 50 steps of 40 ms
            waited = {rank: sum(1 - share for _, share in cells[-10:]) / 10 for rank, cells in before.cells.items()}
            assert waited[2] < 0.3 < min(waited[rank] for rank in (0, 1, 3))

            for _ in range(_POLLS):
                job = only(diagnose(polling.look(), patience=_PATIENCE))
                assert job.verdict == "healthy"
                assert "HD901" not in {finding.code for finding in job.findings}
                for view in job.ranks:
                    assert view.waited_share is not None
                    assert view.label == ("blocked" if view.waited_share > 0.5 else "computing")
                    assert view.where is not None
                    assert view.where.file.endswith("steady.py")
                    assert view.stack_seconds_ago is not None
                    assert view.stack_seconds_ago < 10.0
            assert only(diagnosis).verdict == "healthy"
            assert not {view.pid for view in only(diagnosis).ranks} & set(paused)

            job, seconds = freeze(run, polling)
        finally:
            polling.close()
    assert job.findings[0].culprits == (3,)
    assert seconds < _PATIENCE + 20
    assert job.past is not None
    assert (job.past.slowest, job.past.stopped_us is not None) == (2, True)


def test_one_look_at_a_run_that_moves_pauses_it_only_if_somebody_asks_for_its_stacks(
    tmp_path: Path, paused: list[int]
) -> None:
    with under_torchrun(tmp_path, "steady.py", options=("--nproc-per-node=4",)) as run:
        run.wait_for("goes on", 4)
        options = Options(pids=(run.launcher.pid,))
        snapshot = observe(options)
        job = only(diagnose(snapshot))
        assert job.verdict == "healthy"
        assert all(view.where is not None and view.where.file.endswith("steady.py") for view in job.ranks)
        ranks = [process for process in snapshot.hosts[0].processes if process.role == "rank"]
        assert [isinstance(process.stack, Stack) for process in ranks] == [False] * 4
        assert not {process.pid for process in ranks} & set(paused)
        (host,) = observe(replace(options, stacks=True)).hosts
        assert all(isinstance(process.stack, Stack) for process in host.processes if process.role == "rank")
        assert {process.pid for process in ranks} & set(paused)


def test_a_run_that_freezes_during_a_look_is_looked_at_again(tmp_path: Path) -> None:
    """What moved at the beginning of the window would otherwise count as progress."""
    with under_torchrun(tmp_path, "steady.py", options=("--nproc-per-node=4",)) as run:
        run.wait_for("goes on", 4)
        freezes = threading.Timer(0.5, run.go_on)
        freezes.start()
        job = only(diagnose(observe(Options(pids=(run.launcher.pid,), window=1.5)), patience=_PATIENCE))
        freezes.join()
        assert job.verdict == "hung"
        assert job.findings[0].culprits == (3,)


def test_one_look_at_a_frozen_run_shows_what_was_before(tmp_path: Path) -> None:
    with under_torchrun(tmp_path, "steady.py", options=("--nproc-per-node=4",)) as run:
        run.wait_for("goes on", 4)
        run.go_on()
        until = time.monotonic() + 200
        while True:
            diagnosis, runs = examine(observe(Options(pids=(run.launcher.pid,), window=0.5)), patience=_PATIENCE)
            if only(diagnosis).verdict == "hung":
                break
            assert time.monotonic() < until, diagnosis
        # The kernel shows that nothing has run for a second: no window is needed to see that.
        while (short := observe(Options(pids=(run.launcher.pid,), shorten=True))).hosts[0].window_seconds == 1.0:
            assert time.monotonic() < until  # a look has just made a thread run
        whole = observe(Options(pids=(run.launcher.pid,)))
    assert whole.hosts[0].window_seconds == 1.0
    first, second = (only(diagnose(snapshot, patience=_PATIENCE)).findings[0] for snapshot in (short, whole))
    assert (first.summary, first.confidence, first.id) == (second.summary, second.confidence, second.id)
    (line,) = timelines(diagnosis, runs).values()
    rows = {rank: row for row in line.rows for rank in row.ranks}
    assert rows[0].cells[-2] == "waiting"
    assert rows[3].cells[-2] == "unseen"
    progress = {rank: sum(row.shares) for rank, row in rows.items()}
    assert progress[2] > 1.5 * max(progress[rank] for rank in (0, 1, 3))
