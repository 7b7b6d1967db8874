"""The texts that the three findings about a loop left early have in common."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.agreement import Difference
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import counted, is_over_data
from hangdoc.reasoning.text import words

_SHOWN = 4


def evidence(run: Run, left: LeftLoop, differences: Iterable[Difference] = ()) -> list[Evidence]:
    """The strongest difference in data, the loop counters, both stacks, then the other differences. Each pair of amounts is
    listed once: a loop bound, a variable and a beacon often hold the same number."""
    listed: set[tuple[int | None, ...]] = {tuple(counted(one.first)[1] for one in (left.short, left.inside))}
    shown: list[Difference] = []
    for difference in differences:
        amounts = (difference.fewer, difference.more)
        if amounts not in listed and len(shown) < _SHOWN:
            listed.add(amounts)
            shown.append(difference)
    strongest, others = ([line for one in some for line in one.evidence] for some in (shown[:1], shown[1:]))
    stacks = words.class_evidence([left.short, left.inside])
    return [*strongest, *_counters(left), *stacks, *others, *words.standstill(run)]


def after(left: LeftLoop, addition: str = "", *, of: int | None = None) -> str:
    """How far the ranks came that left the loop: ` after 3 batches (addition)`, with `of` ` after 3 of 9 batches`. Of several
    ranks only the first one was counted: ` (rank 1 after 3 batches, addition)`."""
    done = counted(left.short.first)[0]
    count = f"after {_rounds(left, done, of)}" if done is not None else ""
    first, *others = left.short.ranks
    if not others:
        return "".join(f" {part}" for part in (count, addition and f"({addition})") if part)
    parts = ", ".join(filter(None, (count and f"rank {first} {count}", addition)))
    return parts and f" ({parts})"


def _rounds(left: LeftLoop, done: int, total: int | None) -> str:
    """`3 of 9 batches`."""
    one, more = _units(left)
    return f"{done}{_of(total)} {one if (done if total is None else total) == 1 else more}"


def _units(left: LeftLoop) -> tuple[str, str]:
    """What an iteration is, and several: batches; of a loop over numbers, iterations."""
    of_data = known.beacon(left.short.first.process) is not None or is_over_data(left.loop)
    return ("batch", "batches") if of_data else ("iteration", "iterations")


def _of(total: int | None) -> str:
    return f" of {total}" if total is not None else ""


def _counters(left: LeftLoop) -> list[Evidence]:
    lines = []
    for one, text in ((left.short, "left"), (left.inside, "still inside")):
        done, total = counted(one.first)
        count = ""
        if done is not None and left.loop.begin is not None:  # a resumed run did not do them all
            count = f" at iteration {done}"
        elif done is not None and one is left.inside and (total is None or done < total):
            count = f", in {_units(left)[0]} {done + 1}{_of(total)}"  # so that it differs from a rank that left after as many
        elif done is not None:
            count = f" after {_rounds(left, done, total)}"
        text = f"{text} the loop `{left.loop.header}` (line {left.loop.line}){count}"
        lines.append(Evidence(one.first.rank, "progress", text))
    return lines
