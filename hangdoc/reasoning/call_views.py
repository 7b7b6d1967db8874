"""The ledger as the diagnosis has it."""

from statistics import median

from hangdoc.diagnosis import Calls, CallView, FirstDifference, GroupView, PaceView, Where
from hangdoc.reasoning.ledger import history
from hangdoc.reasoning.ledger.lags import Pace
from hangdoc.reasoning.ledger.lags import pace as pace_of
from hangdoc.reasoning.ledger.record import Call, GroupCalls, Ledger, RankCalls
from hangdoc.reasoning.model import Rank, Run
from hangdoc.snapshot import Loops

_LAST_AT_LEAST = 0.5
"""A rank that is the last in fewer of the calls does not stand out."""


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


def run_pace(run: Run) -> Pace | None:
    """The pace of a run's largest group, by the records of its ranks."""
    recorded = [group for group in run.ledger.groups if any(made.numbers for made in group.ranks.values())]
    largest = max(recorded, key=lambda group: len(group.ranks), default=None)
    return pace_of(largest) if largest is not None else None


def pace(run: Run) -> PaceView | None:
    """The pace of a run whose ranks have made calls in the window; None for any other."""
    measured = run_pace(run)
    if measured is None or not any(made.moved for group in run.ledger.groups for made in group.ranks.values()):
        return None
    slowest = measured.slowest
    if slowest is not None and (slowest.last_share < _LAST_AT_LEAST or slowest.median_seconds <= 0):
        slowest = None
    return PaceView(
        calls_per_second=round(measured.calls_per_second, 2),
        steps_per_second=_steps_per_second(run),
        waited_share=round(median(lag.waited_share for lag in measured.lags), 3),
        slowest=slowest.rank if slowest is not None else None,
        late_seconds=round(slowest.median_seconds, 4) if slowest is not None else None,
        last_share=round(slowest.last_share, 3) if slowest is not None else None,
    )


def _steps_per_second(run: Run) -> float | None:
    """Of the rank with the median rate."""
    rates = [rate for rank in run.living if (rate := _rate(run, rank)) is not None]
    return round(median(rates), 2) if rates else None


def _rate(run: Run, rank: Rank) -> float | None:
    """By the framework's count, or else by the batches of the innermost loop that moved."""
    process = rank.process
    window = run.host[rank.host].window_seconds if rank.host in run.host else 0.0
    if process is None or not isinstance(process.loops, Loops) or not window:
        return None
    counts = [(count.done, count.done_before) for count in process.loops.counts]
    counts += [(loader.done, loader.done_before) for loader in process.loops.loaders]
    moved = (done - before for done, before in counts if before is not None and done > before)
    steps = next(moved, None)
    return steps / window if steps is not None else None
