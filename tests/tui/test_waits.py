"""The drawing of who waits for whom: on every recorded run, and what jobs are called."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hangdoc import codec
from hangdoc.diagnose.engine import examine
from hangdoc.diagnose.model import Class, Run
from hangdoc_tui.job_names import job_names
from hangdoc_tui.wait_chains import Picture, Waiting, pictures
from tests.tui.scenes import CORPUS, thousand

BUNDLES = sorted(path.stem for path in CORPUS.glob("*.hangdoc"))


def runs(name: str) -> tuple[Run, ...]:
    return examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)[1]


def classes(picture: Picture) -> list[Class]:
    def of(waiting: Iterable[Waiting]) -> list[Class]:
        return [one for each in waiting for one in (each.one, *of(each.behind))]

    return [*picture.at, *of(picture.behind)]


@pytest.mark.parametrize("name", BUNDLES)
def test_every_class_is_drawn_once_and_every_edge_is_a_wait(name: str) -> None:
    for run in runs(name):
        for picture in pictures(run):
            drawn = Counter(one.ranks for one in classes(picture))
            there = {one.ranks for one in (*picture.blockage.at, *picture.blockage.waiting)}
            assert drawn == Counter(there)
            assert run.waits is not None
            if picture.cycle:
                following = (*picture.at[1:], picture.at[0])
                assert all(run.waits.of(a) & set(b.ranks) for a, b in zip(picture.at, following, strict=True))


def test_a_cycle_begins_with_its_culprit() -> None:
    (run,) = runs("trainer_shard_mismatch")
    (picture,) = pictures(run)
    assert (picture.cycle, [one.ranks for one in picture.at], picture.behind) == (True, [(1,), (0,)], ())


def test_who_waits_for_one_rank_stands_behind_it() -> None:
    (run,) = examine(thousand(), patience=2.0)[1]
    (picture,) = pictures(run)
    assert (picture.cycle, [one.ranks for one in picture.at]) == (False, [(517,)])
    (behind,) = picture.behind
    assert len(behind.one.ranks) == 1023


def test_jobs_are_called_by_script_and_launcher() -> None:
    (run,) = runs("trainer_shard_mismatch")
    assert job_names([run]) == {run.id: "base_train.py · torchrun · 2 ranks"}
    other = replace(run, id="other", master="10.0.0.1:29500")
    assert job_names([run, other]) == {
        run.id: f"base_train.py · torchrun · 2 ranks · {run.master}",
        "other": "base_train.py · torchrun · 2 ranks · 10.0.0.1:29500",
    }


def test_a_run_without_ranks_has_a_name_too() -> None:
    (run,) = runs("trainer_shard_mismatch")
    bare = replace(run, ranks={}, launchers=(), launcher=None, world_size=None)
    assert job_names([bare]) == {run.id: ""}
