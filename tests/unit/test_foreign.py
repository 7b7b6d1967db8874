"""hangbench's foreign programs: the table holds together, and an answer is judged by what is true."""

from typing import Any

import pytest

from hangbench.foreign.program import Program, Situation, healthy, hung
from hangbench.foreign.results import judged, kept
from hangbench.foreign.table import PROGRAMS
from hangdoc.reasoning.rules import all_rules

_STOPPED = hung("stopped", "Rank 1 was stopped.", 1, "HD302", "torchrun train.py")
_GOING = healthy("torchrun train.py")


def _answer(
    situation: Situation, verdict: str, *findings: dict[str, Any], ranks: int = 2, jobs: int = 1, after: int = 9
) -> Any:
    job = {"verdict": verdict, "ranks": [{}] * ranks, "findings": list(findings)}
    document = {"verdict": verdict, "jobs": [job] * jobs, "problems": []}
    program = Program("p", "p", "p", ("p",), (situation,))
    return judged(program, situation, "1", {"document": document, "settled": True, "steps_before": 1, "steps_after": after,
                                            "seconds": 1.0})  # fmt: skip


def _finding(code: str, *culprits: int, severity: str = "error") -> dict[str, Any]:
    return {"code": code, "culprits": list(culprits), "severity": severity}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_program_has_a_control_and_faults_whose_findings_exist(program: Program) -> None:
    codes = {rule.code for rule in all_rules()}
    names = [situation.name for situation in program.situations]
    assert any(situation.healthy for situation in program.situations)
    assert any(not situation.healthy for situation in program.situations)
    assert len(names) == len(set(names))
    assert {code for situation in program.situations for code in situation.codes} <= codes


def test_every_kept_answer_is_of_a_situation_in_the_table() -> None:
    assert set(kept()) <= {
        f"{program.name}/{situation.name}" for program in PROGRAMS for situation in program.situations
    }


def test_the_right_answer_is_right() -> None:
    assert _answer(_STOPPED, "hung", _finding("HD302", 1)).wrong == []
    assert _answer(_GOING, "healthy").wrong == []


def test_each_part_can_be_wrong() -> None:
    assert _answer(_STOPPED, "hung", _finding("HD302", 0)).wrong == ["culprit"]
    assert _answer(_STOPPED, "hung", _finding("HD301", 1)).wrong == ["cause"]
    assert _answer(_STOPPED, "waiting", _finding("HD302", 1)).wrong == ["verdict"]
    assert _answer(_GOING, "healthy", _finding("HD505", 0, severity="warning")).wrong == ["cause"]


def test_a_run_that_is_split_or_partly_unseen_is_a_wrong_verdict() -> None:
    assert _answer(_GOING, "healthy", jobs=2).wrong == ["verdict"]
    assert _answer(_GOING, "healthy", ranks=1).wrong == ["verdict"]


def test_a_healthy_run_that_stood_still_after_the_look_is_noted() -> None:
    assert "no step after the look" in _answer(_GOING, "healthy", after=1).note
