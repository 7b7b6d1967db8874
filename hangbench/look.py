"""One look at a run of a case: hangdoc's answer scored, and what the peers make of the same look."""

from dataclasses import dataclass

from hangbench.case import Case
from hangbench.peers import Said, naive, py_spy
from hangbench.score import Score, score
from hangdoc.diagnose.engine import diagnose
from hangdoc.snapshot import Snapshot


@dataclass(frozen=True)
class Look:
    """The three answers."""

    score: Score
    naive: Said
    py_spy: Said


def judged(case: Case, snapshot: Snapshot, seconds: float = 0.0, port: int | None = None) -> Look:
    """A snapshot of a run of `case`, diagnosed and scored."""
    found = score(case, diagnose(snapshot, patience=case.tolerance), port, seconds)
    return Look(found, naive(snapshot, case.ranks), py_spy(snapshot))
