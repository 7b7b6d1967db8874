"""A call that was concluded from a rank's stack: a record of length one, without a number, and marked as inferred."""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.reasoning.ledger.put_together import Part
from hangdoc.reasoning.model.ledger import Call, Pending, RankCalls, Site


class StackCall(NamedTuple):
    """The collective in which a rank waits, by its stack."""

    rank: int
    host: str
    group: str | None
    """None for the default group."""
    members: tuple[int, ...]
    """Of the group; empty if unknown."""
    op: str
    site: Site | None
    backend: str | None = None
    age_seconds: float | None = None


def parts_of(call: StackCall) -> Iterator[Part]:
    """The part of a ledger that a stack gives."""
    called = Call(call.op, sites=(call.site,) if call.site is not None else ())
    waiting = Pending(0, called, call.age_seconds, source="inferred")
    calls = RankCalls(call.rank, call.host, "inferred", pending=(waiting,), last=called)
    yield Part(call.group, call.members, call.backend, calls)
