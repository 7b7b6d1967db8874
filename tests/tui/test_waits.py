"""The drawing of which rank waits for which, on every recorded run."""

from collections import Counter
from collections.abc import Iterable

import pytest

from hangdoc import codec
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.model.rank import Class
from hangdoc.reasoning.model.run import Run
from hangdoc_tui.wait_chains import Picture, Waiting, pictures
from tests.tui.sample_runs import CORPUS, thousand

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


def test_who_waits_for_one_rank_stands_behind_it() -> None:
    (run,) = examine(thousand(), patience=2.0)[1]
    (picture,) = pictures(run)
    assert (picture.cycle, [one.ranks for one in picture.at]) == (False, [(517,)])
    (behind,) = picture.behind
    assert len(behind.group.ranks) == 1023
