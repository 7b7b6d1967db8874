"""What the findings about a cycle of calls have in common: which rank waits in which call, and under which condition."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions
from hangdoc.reasoning.ranks.place import continued_by
from hangdoc.reasoning.text import words


def calls(parts: Iterable[Class]) -> str:
    """`ranks 0-2 in barrier; rank 3 in all_reduce`."""
    return "; ".join(f"{words.ranks(part.ranks)} in {words.operation(part.first)}" for part in parts)


def evidence(run: Run, parts: tuple[Class, ...]) -> list[Evidence]:
    """Their stacks, the conditions around their calls, and how long they have exchanged no data."""
    handlers = _handlers(part.first for part in parts[:3])
    return [*words.class_evidence(parts), *under(parts), *handlers, *words.standstill(run)]


def under(parts: Iterable[Class]) -> list[Evidence]:
    """The conditions around their calls that are not around those of the others."""
    firsts = [part.first for part in tuple(parts)[:3]]
    return [
        Evidence(rank.rank, "source", text)
        for rank in firsts
        if (text := next(filter(None, (conditions.described(rank, o) for o in firsts if o is not rank)), None))
    ]


def _handlers(ranks: Iterable[Rank]) -> list[Evidence]:
    """The handlers after which the program continues the loop that a call is in: with one, an exception may skip calls."""
    found = {
        (short(frame.file), frame.line, handler): rank.rank
        for rank in ranks
        for frame in rank.own
        for handler in continued_by(frame)
    }
    return [
        Evidence(rank, "source", f"`{handler}` around {file}:{line} continues the loop after an exception")
        for (file, line, handler), rank in list(found.items())[:2]
    ]
