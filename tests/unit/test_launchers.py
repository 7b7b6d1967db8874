"""The judge of the launchers' matrix: what it calls wrong in a diagnosis."""

from pathlib import Path
from typing import Any

import pytest

from hangbench.launchers.launched import Launched, Part
from hangbench.launchers.look import strangers, wrong_about
from hangbench.launchers.table import BY_NAME


def job(ranks: dict[int, int | None], verdict: str = "hung", culprits: tuple[int, ...] = (1,)) -> dict[str, Any]:
    findings = [{"code": "HD101", "severity": "error", "culprits": list(culprits), "summary": "why"}]
    return {
        "id": "a", "launcher": "torchrun", "world_size": 2, "verdict": verdict,
        "ranks": [{"rank": rank, "pid": pid, "state": "in-collective"} for rank, pid in ranks.items()],
        "findings": [] if verdict == "healthy" else findings,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Launched:
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}").write_text(str(100 + rank))
    launched = Launched(Part(BY_NAME["torchrun"], "uneven"), tmp_path, {})
    launched.hung = True
    return launched


@pytest.mark.parametrize(
    ("jobs", "wrong"),
    [
        ([job({0: 100, 1: 101})], None),
        ([job({0: 100, 1: None})], "ranks {0: 100, 1: None} instead of"),
        ([job({0: 100}), job({1: 101})], "2 jobs instead of one"),
        ([], "0 jobs instead of one"),
        ([job({0: 100, 1: 101}, "healthy")], "verdict healthy instead of hung"),
        ([job({0: 100, 1: 101}, culprits=(0,))], "HD101 with culprits [0] instead of culprit 1"),
    ],
)
def test_what_is_wrong_about_a_hung_run(run: Launched, jobs: list[dict[str, Any]], wrong: str | None) -> None:
    found = wrong_about(run, {"jobs": jobs})
    assert (wrong is None and found == []) or (wrong is not None and wrong in found[0])


def test_a_healthy_run_must_not_be_called_hung(run: Launched) -> None:
    run.hung = False
    assert wrong_about(run, {"jobs": [job({0: 100, 1: 101}, "healthy")]}) == []
    (found,) = wrong_about(run, {"jobs": [job({0: 100, 1: 101})]})
    assert "verdict hung instead of healthy, HD101 why" in found


def test_another_runs_job_is_a_stranger(run: Launched) -> None:
    mine, other = job({0: 100, 1: 101}), job({0: 200, 1: 201})
    assert strangers([run], {"jobs": [mine]}) == []
    assert len(strangers([run], {"jobs": [mine, other]})) == 1
