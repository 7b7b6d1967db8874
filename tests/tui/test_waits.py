"""The drawing of which rank waits for which, on every recorded run."""

import datetime
from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from rich.text import Text

from hangdoc import codec
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.model.rank import Class
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Process, Unavailable
from hangdoc_tui.history import History
from hangdoc_tui.source import Poll
from hangdoc_tui.view_model import ViewModel
from hangdoc_tui.wait_chains import Picture, Waiting, pictures
from hangdoc_tui.waits import _make_lines
from tests.tui.sample_runs import CORPUS, thousand
from tests.unit.builders import c10d, frame, rank, snapshot

BUNDLES = sorted(path.stem for path in CORPUS.glob("*.hangdoc"))


def runs(name: str) -> tuple[Run, ...]:
    return examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)[1]


def classes(picture: Picture) -> list[Class]:
    def of(waiting: Iterable[Waiting]) -> list[Class]:
        return [group for each in waiting for group in (each.group, *of(each.behind))]

    return [*picture.at, *of(picture.behind)]


@pytest.mark.parametrize("name", BUNDLES)
def test_every_class_is_drawn_once_and_every_edge_is_a_wait(name: str) -> None:
    for run in runs(name):
        for picture in pictures(run):
            drawn = Counter(one.ranks for one in classes(picture))
            there = {one.ranks for one in (*picture.blockage.awaited, *picture.blockage.waiting)}
            assert drawn == Counter(there)
            assert run.waits is not None
            if picture.cycle:
                following = (*picture.at[1:], picture.at[0])
                assert all(run.waits.awaited_by(a) & set(b.ranks) for a, b in zip(picture.at, following, strict=True))


def test_a_cycle_begins_with_its_culprit() -> None:
    (run,) = runs("trainer_shard_mismatch")
    (picture,) = pictures(run)
    assert (picture.cycle, [one.ranks for one in picture.at], picture.behind) == (True, [(1,), (0,)], ())


def test_a_culprit_outside_of_the_cycle_that_is_drawn_was_observed() -> None:
    """Each of two ranks may wait for any other one, since no peer is known: the shortest cycle has one of them only."""
    stuck = [rank(number, *c10d(op), frame("main", 9), world=4) for number, op in ((0, "recv"), (3, "send"))]
    waiting = [rank(number, *c10d("barrier"), frame("main", 7), world=4) for number in (1, 2)]
    diagnosis, (run,) = examine(snapshot(*stuck, *waiting), patience=2.0)
    (picture,) = pictures(run)
    assert (picture.blockage.blamed, [one.ranks for one in picture.at], picture.unseen) == (
        (0, 1, 2, 3), [(0,), (1, 2)], (),
    )  # fmt: skip
    poll = Poll(0, datetime.datetime.now(datetime.UTC), 0.0, snapshot(*stuck, *waiting), diagnosis, (run,))
    rows = [cells for cells, _ in _make_lines(ViewModel(poll, diagnosis.jobs[0], run, None, History()))]
    assert not any("not observed" in str(cells[0]) for cells in rows)
    assert [str(cells[1]) for cells in rows if "rank 0" in str(cells[0])][-1] == "1-3"


def test_who_waits_for_one_rank_stands_behind_it() -> None:
    (run,) = examine(thousand(), patience=2.0)[1]
    (picture,) = pictures(run)
    assert (picture.cycle, [one.ranks for one in picture.at]) == (False, [(517,)])
    (behind,) = picture.behind
    assert len(behind.group.ranks) == 1023


@pytest.mark.parametrize("name", BUNDLES)
def test_what_a_wait_is_fits_into_80_columns(name: str) -> None:
    """`HD102 uneven-batches, a cycle for 2 min 10 s. Canno…`: the row can not be scrolled."""
    value = codec.read(CORPUS / f"{name}.hangdoc")
    diagnosis, found = examine(value, patience=2.0)
    poll = Poll(0, datetime.datetime.now(datetime.UTC), 0.0, value, diagnosis, found)
    for job, run in zip(diagnosis.jobs, found, strict=True):
        for cells, _ in _make_lines(ViewModel(poll, job, run, None, History())):
            assert len(cells) > 1 or not isinstance(cells[0], Text) or cells[0].cell_len <= 77, cells[0]


@pytest.mark.parametrize("limit", [1700.0, None])
def test_what_cannot_end_by_itself_may_end_at_the_timeout(limit: float | None) -> None:
    """`cannot end by itself` was beside `torch ends this run in 28 min`."""
    value = codec.read(CORPUS / "trainer_shard_mismatch.hangdoc")
    diagnosis, (run,) = examine(value, patience=2.0)
    poll = Poll(0, datetime.datetime.now(datetime.UTC), 0.0, value, diagnosis, (run,))
    job = replace(diagnosis.jobs[0], ends_by_itself_in_seconds=limit)
    lines = [str(cells[0]) for cells, _ in _make_lines(ViewModel(poll, job, run, None, History()))]
    (facts,) = (line for line in lines if "by itself" in line)
    assert facts.endswith("cannot end by itself before torch's timeout" if limit else "cannot end by itself")


def test_ranks_that_have_ended_are_no_ranks_that_were_not_observed() -> None:
    nodes = [rank(number, state="Z", stack=Unavailable(reason="it has ended"), clocks=None) for number in range(2)]
    agent = Process(
        pid=50, ppid=1, role="launcher", name="torchrun", argv=("torchrun",), state="S", started_seconds_ago=90.0
    )
    value = snapshot(*nodes, agent, silence=None)
    diagnosis, found = examine(value, patience=2.0)
    poll = Poll(0, datetime.datetime.now(datetime.UTC), 0.0, value, diagnosis, found)
    lines = _make_lines(ViewModel(poll, diagnosis.jobs[0], found[0], None, History()))
    texts = [" ".join(cell.plain for cell in cells if isinstance(cell, Text)) for cells, _ in lines]
    assert not any("not observed" in text for text in texts), texts
    assert sum("✗" in text for text in texts) == 2
