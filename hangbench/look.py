"""One look at a case: the score of hangdoc's answer, and the answers of the peers."""

from dataclasses import dataclass

import msgspec

from hangbench.case import Case
from hangbench.peers import PeerAnswer, naive, py_spy
from hangbench.score import Score, score
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Snapshot, Unavailable

_NEVER = Unavailable(reason="native stacks were not requested")


@dataclass(frozen=True)
class Look:
    """The three answers to one look."""

    score: Score
    without_native: Score
    """The score of the same look without native frames, like `--native never`."""
    undisturbed: tuple[int, int]
    """(ranks that the look did not change, all ranks)."""
    naive: PeerAnswer
    py_spy: PeerAnswer


def judged(case: Case, snapshot: Snapshot, seconds: float = 0.0, undisturbed: tuple[int, int] = (0, 0)) -> Look:
    """Diagnose and score a snapshot of `case`. `undisturbed` comes from the live run."""
    whole = score(case, diagnose(snapshot, patience=case.tolerance), snapshot, seconds)
    processes = tuple(msgspec.structs.replace(p, native=_NEVER) for p in snapshot.hosts[0].processes)
    plain = msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(snapshot.hosts[0], processes=processes),))
    without = score(case, diagnose(plain, patience=case.tolerance), plain, seconds)
    return Look(whole, without, undisturbed, naive(snapshot, case.ranks), py_spy(snapshot))
