"""The calls, the card and the progress of ranks, as the diagnosis has them."""

from typing import NamedTuple

from hangdoc.detail import Began
from hangdoc.diagnosis import Calls, CallView, FirstDifference, GpuView, GroupView, PaceView, Where
from hangdoc.reasoning.causes import pace
from hangdoc.reasoning.causes.loops import counts_left_round, ended_before_call
from hangdoc.reasoning.ledger import history
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, RankCalls
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import card_of, errors_of, events_of, owners_of_event
from hangdoc.reasoning.ranks.counters import BatchCount, count_batches, is_in_counted_loop
from hangdoc.reasoning.waiting import waits


class Beginning(NamedTuple):
    """The beginning of a hang."""

    seconds: float | None
    """How long ago it was; None if unknown."""
    by: Began | None
    """What the ranks did last; None if only the age of the run is known."""


def find_beginning(run: Run) -> Beginning:
    """When the ranks of the leading blockage of a run began to wait: when they made the call that they wait in, or else when they
    last exchanged data. When a process outside of the run stopped is not known: before that, the ranks may have been idle. Nor is
    it known when a rank died while the others were idle."""
    if not run.blockages[0].kind.BLAMES_RANKS or run.blockages[0].idle is not None:
        return Beginning(None, None)
    classes = run.blockages[0].waiting or run.blockages[0].awaited
    if (recorded := waits.seconds_recorded(run, classes)) is not None:
        return Beginning(recorded, "call")
    silent = [alike.first.silent_seconds for alike in classes if alike.first.silent_seconds is not None]
    if silent:
        return Beginning(max(min(silent), run.age_seconds or 0.0), "data")
    return Beginning(run.age_seconds, None)


def groups(ledger: Ledger) -> tuple[GroupView, ...]:
    """The groups of a job."""
    return tuple(
        GroupView(name=group.name, label=group.label, ranks=group.members, backend=group.backend)
        for group in ledger.groups
    )


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
    return CallView(op=call.name, where=where)


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
    rates = pace.call_rates(run, pace.paces_of(run))
    steps = pace.steps_per_second(run)
    stragglers = pace.stragglers(run, measured)
    slowest, long = stragglers.slow[0] if stragglers is not None else None, measured.long_waits
    return PaceView(
        calls_per_second=round(rates.most, 2),
        least_calls_per_second=round(rates.least, 2) if rates.least is not None else None,
        steps_per_second=round(steps, 2) if steps is not None else None,
        waited_share=round(pace.waited_share(measured), 3),
        slowest=slowest.rank if slowest is not None else None,
        late_seconds=round(slowest.median_seconds, 6) if slowest is not None else None,
        last_share=round(slowest.last_share, 3) if slowest is not None else None,
        calls=measured.telling_calls,
        tells_of_ranks=pace.tells_of_ranks(measured),
        of_calls=measured.calls,
        operations=tuple(sorted(measured.names)),
        long_wait_seconds=round(long.seconds, 1) if long.number else None,
        long_waits=long.number,
        long_wait_ranks=long.ranks,
        rate_seconds=round(measured.span_seconds, 3),
    )


# --- cards ------------------------------------------------------------------------------------------------------------


def gpu_view(run: Run, rank: Rank) -> GpuView | None:
    """The card that a rank computes on; None if that is not known."""
    host = run.host.get(rank.host)
    card = card_of(host, rank) if host is not None else None
    if host is None or card is None:
        return None
    owners = ((event, owners_of_event(run, host, event)) for event in events_of(run, host))
    events = [event for event, them in owners if them is not None and rank.rank in them.ranks]
    return GpuView(
        index=card.index,
        name=card.name,
        utilisation=card.utilisation,
        memory_activity=card.memory_activity,
        power_watts=card.power_watts,
        power_limit_watts=card.power_limit_watts,
        memory_used_bytes=card.memory_used_bytes,
        memory_total_bytes=card.memory_total_bytes,
        temperature_celsius=card.temperature_celsius,
        throttle=card.throttle or (),
        errors=errors_of(card, events),
    )


# --- batches ----------------------------------------------------------------------------------------------------------


def count_done(run: Run, rank: Rank) -> BatchCount:
    """The batches that a rank has completed: not that in which a statement ended its loop."""
    count, view = count_batches(rank), rank.loop
    kinds = (blockage.kind for blockage in run.blockages if isinstance(blockage.kind, LeftLoop))
    left = any(
        rank.rank in kind.short.ranks
        and view is not None
        and kind.loop == view.loop
        and counts_left_round(kind)
        and ended_before_call(kind)
        for kind in kinds
    )
    return count._replace(done=count.done - 1) if left and count.source == "inferred" and count.done else count


def has_ended(run: Run, rank: Rank, count: BatchCount) -> bool:
    """Whether a rank has left its loop over the data, has done all of it, or is dead. `count`: its batches."""
    if count.done is None:
        return False
    if rank.label == "dead" or (rank.loop is not None and not rank.loop.inside):
        return True
    left = any(isinstance(b.kind, LeftLoop) and rank.rank in b.culprits for b in run.blockages)
    if left and not is_in_counted_loop(rank, count):  # else it left another one inside it
        return True
    return count.total is not None and count.done >= count.total
