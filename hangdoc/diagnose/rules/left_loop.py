"""The evidence that the three findings about a loop left early have in common."""

from collections.abc import Iterable

from hangdoc.diagnose import words
from hangdoc.diagnose.causes.amounts import Difference
from hangdoc.diagnose.kinds import LeftLoop
from hangdoc.diagnose.ranks.counters import batches
from hangdoc.diagnosis import Evidence


def evidence(kind: LeftLoop, differences: Iterable[Difference] = ()) -> list[Evidence]:
    """The amounts first, then the counters, then both stacks."""
    shown = [line for difference in list(differences)[:3] for line in difference.evidence]
    return [*shown, *_counters(kind), *words.class_evidence([kind.short, kind.inside])]


def _counters(kind: LeftLoop) -> list[Evidence]:
    lines = []
    for one, where in ((kind.short, "left"), (kind.inside, "is inside")):
        rank = one.first
        text = f"{where} the loop `{kind.loop.header}` (line {kind.loop.line})"
        done, total = batches(rank.process, rank.loop) if rank.process else (None, None)
        if done is not None:
            text += f": {done} batches done" + (f" of {total}" if total is not None else "")
        lines.append(Evidence(rank=rank.rank, probe="progress", text=text))
    return lines
