"""The texts that the three findings about a loop left early have in common."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning import words
from hangdoc.reasoning.causes.amounts import Difference
from hangdoc.reasoning.kinds import LeftLoop
from hangdoc.reasoning.ranks.counters import batches

_SHOWN = 4


def evidence(kind: LeftLoop, differences: Iterable[Difference] = ()) -> list[Evidence]:
    """The strongest difference in data, the loop counters, both stacks, then the other differences. Each pair of amounts is
    listed once: a loop bound, a variable and a beacon often hold the same number."""
    totals = tuple(batches(one.first)[1] for one in (kind.short, kind.inside))
    listed: set[tuple[int | None, ...]] = {totals}
    shown: list[Difference] = []
    for difference in differences:
        amounts = (difference.fewer, difference.more)
        if amounts not in listed and len(shown) < _SHOWN:
            listed.add(amounts)
            shown.append(difference)
    strongest, others = ([line for one in some for line in one.evidence] for some in (shown[:1], shown[1:]))
    return [*strongest, *_counters(kind), *words.class_evidence([kind.short, kind.inside]), *others]


def after(kind: LeftLoop, unit: str = "batches") -> str:
    """The same in a sentence, ` after 3 batches` or ` (rank 1 after 3 batches)`; empty if they were not counted."""
    done = batches(kind.short.first)[0]
    text = count(kind, done, unit) if done is not None else ""
    return f" ({text})" if text and len(kind.short.ranks) > 1 else f" {text}".rstrip()


def count(kind: LeftLoop, done: int, unit: str) -> str:
    """`after 3 batches`. Of several ranks only the first one was counted: `rank 1 after 3 batches`."""
    first, *others = kind.short.ranks
    return f"{f'rank {first} ' if others else ''}after {done} {unit}"


def _counters(kind: LeftLoop) -> list[Evidence]:
    lines = []
    for one, left in ((kind.short, True), (kind.inside, False)):
        done, total = batches(one.first)
        number = f"{done} of {total}" if done is not None and total is not None else done
        loop = f"the loop `{kind.loop.header}` (line {kind.loop.line})"
        text = f"left {loop}" if left else f"still inside {loop}"
        if number is not None:
            text += f" after {number} batches"
        lines.append(Evidence(rank=one.first.rank, probe="progress", text=text))
    return lines
