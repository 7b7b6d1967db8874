"""The ledger as the diagnosis has it."""

from hangdoc.diagnosis import Calls, CallView, FirstDifference, GroupView, PaceView, Where
from hangdoc.reasoning.causes import pace
from hangdoc.reasoning.ledger import history
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, RankCalls
from hangdoc.reasoning.model.run import Run


def groups(ledger: Ledger) -> tuple[GroupView, ...]:
    """The groups of a job."""
    return tuple(GroupView(name=group.name, ranks=group.members, backend=group.backend) for group in ledger.groups)


def calls(ledger: Ledger, rank: int) -> tuple[Calls, ...]:
    """The calls of a rank, one for each of its groups."""
    return tuple(_calls(group, made) for group, made in ledger.of_rank(rank))


def _calls(group: GroupCalls, made: RankCalls) -> Calls:
    first = made.pending[0] if made.pending else None
    recorded = first is not None and first.source == "recorder"
    age = first.age_seconds if first is not None else made.last_age_seconds
    return Calls(
        group=group.name,
        made=made.made,
        pending=first.number if first is not None and recorded else None,
        last=call_view(made.last) if made.last is not None else None,
        age_seconds=round(age, 3) if age is not None else None,
        source=made.source,
    )


def call_view(call: Call) -> CallView:
    """A call with its line."""
    site = call.site
    where = Where(file=site.file, line=site.line, function=site.function) if site is not None else None
    return CallView(op=call.op, where=where)


def first_difference(group: GroupCalls, difference: history.FirstDifference) -> FirstDifference:
    """Where calls first differed."""
    return FirstDifference(
        group=group.name,
        number=difference.number,
        ranks=difference.ranks,
        shift=difference.shift,
        call=call_view(difference.call),
        others_call=call_view(difference.others_call),
        calls_ago=difference.calls_ago,
        steps_ago=difference.steps_ago,
    )


def pace_view(run: Run) -> PaceView | None:
    """The pace of a run whose ranks have made calls in the window; None for any other."""
    measured = pace.pace_of(run)
    if measured is None:
        return None
    steps = pace.steps_per_second(run)
    stragglers = pace.stragglers(run, measured)
    slowest = stragglers.slow[0] if stragglers is not None else None
    return PaceView(
        calls_per_second=round(measured.calls_per_second, 2),
        steps_per_second=round(steps, 2) if steps is not None else None,
        waited_share=round(pace.waited_share(measured), 3),
        slowest=slowest.rank if slowest is not None else None,
        late_seconds=round(slowest.median_seconds, 6) if slowest is not None else None,
        last_share=round(slowest.last_share, 3) if slowest is not None else None,
    )
