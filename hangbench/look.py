"""One look at a run of a case: hangdoc's answer scored, and what the peers make of the same look."""

from dataclasses import dataclass

import msgspec

from hangbench.case import Case
from hangbench.peers import Said, naive, py_spy
from hangbench.score import Score, score
from hangdoc.diagnose.engine import diagnose
from hangdoc.snapshot import Snapshot, Unavailable

_NEVER = Unavailable(reason="native stacks were not wanted")


@dataclass(frozen=True)
class Look:
    """The three answers."""

    score: Score
    without_native: Score
    """As `--native never` would have it: the same look without native frames."""
    undisturbed: tuple[int, int]
    """(ranks left as they were, all that were looked at)."""
    naive: Said
    py_spy: Said


def judged(case: Case, snapshot: Snapshot, seconds: float = 0.0, undisturbed: tuple[int, int] = (0, 0)) -> Look:
    """A snapshot of a run of `case`, diagnosed and scored; `undisturbed` is what the live run says of its ranks."""
    found = score(case, diagnose(snapshot, patience=case.tolerance), snapshot, seconds)
    processes = tuple(msgspec.structs.replace(p, native=_NEVER) for p in snapshot.hosts[0].processes)
    plain = msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(snapshot.hosts[0], processes=processes),))
    without = score(case, diagnose(plain, patience=case.tolerance), plain, seconds)
    return Look(found, without, undisturbed, naive(snapshot, case.ranks), py_spy(snapshot))
