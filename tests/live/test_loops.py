"""What real ranks' own iterators count: frozen and moving, behind what people wrap around a dataloader."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.look.polling import Polling
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Loader, Loops, Process, Snapshot
from tests.live.watched import Watched, under_torchrun

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
STOP = 7
"""The iteration of tests/live/programs/loops.py in which both ranks are."""
_SECONDS = 300


def ranks(snapshot: Snapshot) -> dict[int, Process]:
    (host,) = snapshot.hosts
    assert host.problems == ()
    return {one.identity.rank: one for one in host.processes if one.role == "rank" and one.identity is not None}


def loaders(process: Process) -> tuple[Loader, ...]:
    assert isinstance(process.loops, Loops), process.loops
    return process.loops.loaders


def until_hung(run: Watched) -> tuple[Snapshot, Diagnosis]:
    """The first look that says `hung`."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        snapshot = observe(Options(pids=(run.launcher.pid,), window=0.5))
        answer = diagnose(snapshot, patience=1.0)
        if answer.verdict == "hung":
            return snapshot, answer
    raise AssertionError(run.log()[-2000:])


FORMS: dict[str, tuple[int | None, int, str]] = {
    # form: batches in all, loops around, kind
    "module": (40, 0, "_SingleProcessDataLoaderIter"),
    "function": (40, 1, "_SingleProcessDataLoaderIter"),
    "epochs": (40, 1, "_SingleProcessDataLoaderIter"),
    "zip": (25, 0, "_SingleProcessDataLoaderIter"),
    "tqdm": (40, 0, "_SingleProcessDataLoaderIter"),
    "workers": (40, 0, "_MultiProcessingDataLoaderIter"),
    "iterable": (None, 0, "_MultiProcessingDataLoaderIter"),
    "generator": (40, 0, "_SingleProcessDataLoaderIter"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_that_waits_in_a_batch(form: str, tmp_path: Path) -> None:
    """It is in its eighth batch, whatever is between the dataloader and the loop, and the other one broke off in that."""
    total, depth, kind = FORMS[form]
    with under_torchrun(tmp_path, "loops.py", form) as run:
        run.wait_for("begins", times=2)
        snapshot, answer = until_hung(run)
    waiting, left = ranks(snapshot)[0], ranks(snapshot)[1]
    loader = loaders(waiting)[0]
    assert (loader.kind, loader.done, loader.done_before, loader.total) == (kind, STOP + 1, STOP + 1, total)
    assert (loader.name, loader.depth) == ("loader", depth)
    assert len(loader.workers) == (2 if form in ("workers", "iterable") else 0)
    assert all(one.done is None for one in loaders(left))  # its iterator is gone
    first, second = answer.jobs[0].ranks
    assert (first.batches_done, first.batches_total, first.batches_source) == (STOP, total, "loader")
    if form in ("tqdm", "workers", "generator", "iterable", "zip"):
        # The variable of `enumerate` is still there, but a later loop has it too, and may have run.
        assert second.batches_done is None
    finding = answer.jobs[0].findings[0]
    assert (finding.code, finding.culprits) == ("HD105", (1,))


def test_the_shorter_shards_of_a_plain_loop(tmp_path: Path) -> None:
    """`for x in loader`, without any counter: 201 batches against 4."""
    with under_torchrun(tmp_path, "loops.py", "shards") as run:
        run.wait_for("begins", times=2)
        _, answer = until_hung(run)
    (job,) = answer.jobs
    counts = [(one.batches_done, one.batches_total, one.batches_source) for one in job.ranks]
    assert counts == [(4, 201, "loader"), (4, 4, "loader")]
    finding = job.findings[0]
    assert (finding.code, finding.culprits, finding.victims) == ("HD101", (1,), (0,))
    assert finding.confidence > 0.95
    assert "after 4 batches (rank 0 expects 201)" in finding.summary


def test_rows_of_files_are_not_counted_within_a_file(tmp_path: Path) -> None:
    """The inner loop of the generator begins again with each file: it is in row 1 of 10 after 51 batches. Compared with a rank
    that has left its loop after 50, this was "left out a call"."""
    with under_torchrun(tmp_path, "loops.py", "files") as run:
        run.wait_for("begins", times=2)
        _, answer = until_hung(run)
    (job,) = answer.jobs
    assert [one.batches_done for one in job.ranks] == [50, 50]  # `made` counts the batch in work, too
    finding = job.findings[0]
    assert (finding.code, finding.culprits) == ("HD101", (1,))


def test_ranks_that_move(tmp_path: Path) -> None:
    """Two readings of one number, in a look and in each poll of a watch; the ranks are never far from each other."""
    with ExitStack() as stack:
        run = stack.enter_context(under_torchrun(tmp_path, "loops.py", "function", "--move"))
        run.wait_for("begins", times=2)
        options = Options(pids=(run.launcher.pid,), window=0.5)
        snapshot = observe(options)
        polling = Polling(options)
        stack.callback(polling.close)
        polls = [polling.look() for _ in range(3)]
    counts = []
    for process in ranks(snapshot).values():
        loader = next(one for one in loaders(process) if one.kind == "_SingleProcessDataLoaderIter")
        assert loader.done is not None and loader.done_before is not None
        assert (loader.total, loader.depth) == (100_000, 1)
        assert 0 < loader.done - loader.done_before < 500
        counts.append(loader.done)
    assert abs(counts[0] - counts[1]) <= 50  # they are read one after the other
    assert all(one.batches_source == "loader" for one in diagnose(snapshot).jobs[0].ranks)
    for one in polls:
        for process in ranks(one).values():
            done = next(one.done for one in loaders(process) if one.kind == "_SingleProcessDataLoaderIter")
            assert done is not None and done >= counts[0] - 50
