"""What the findings about a cycle of calls have in common: who waits in what, under which conditions, for how long."""

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Class, Run
from hangdoc.diagnose.ranks import conditions
from hangdoc.diagnosis import Evidence


def waits(parts: tuple[Class, ...]) -> str:
    """Who waits in what, in one clause; the smallest party last."""
    return "; ".join(
        f"{words.ranks(part.ranks)} {words.verb(part.ranks, 'waits', 'wait')} in {words.operation(part.first)}"
        for part in reversed(parts)
    )


def evidence(run: Run, parts: tuple[Class, ...]) -> list[Evidence]:
    """Their stacks, the conditions their calls stand under, and since when they are silent."""
    firsts = [part.first for part in parts[:3]]
    under = [
        Evidence(rank=rank.rank, probe="source", text=text)
        for rank in firsts
        if (text := next(filter(None, (conditions.spoken(rank, o) for o in firsts if o is not rank)), None))
    ]
    return [*words.class_evidence(parts), *under, *words.standstill(run)]
