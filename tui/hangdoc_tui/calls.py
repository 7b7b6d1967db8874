"""What torch's record of calls says of each rank: calls per second, and how late it comes to them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from hangdoc.diagnosis import RankView
from hangdoc.phrases import apart_from_waits, duration, frequency, list_operations, milliseconds
from hangdoc.reasoning.ledger.lags import Lag
from hangdoc.reasoning.model.ledger import RankCalls
from hangdoc.snapshot import Host
from hangdoc_tui.rates import SECONDS, Rate, find_rate
from hangdoc_tui.view_model import ViewModel

_MOST_TIMES = 64
"""Of this many calls, the times tell the rate."""
_LEAST_SECONDS = 0.001
"""Who comes later by less is not late."""


def has_record(model: ViewModel) -> bool:
    """Whether the calls of any rank are recorded."""
    return any(calls.source == "recorder" for group in model.run.ledger.groups for calls in group.ranks.values())


def rate_text(model: ViewModel, views: Sequence[RankView]) -> str:
    """The calls per second of some ranks, on average; `-` if unknown."""
    rates = [rate.per_second for view in views if (rate := _find_rate(model, view)) is not None]
    if not rates:
        return "-"
    return frequency(sum(rates) / len(rates))


def late_text(model: ViewModel, views: Sequence[RankView]) -> str:
    """How late the latest of some ranks comes: `51 ms`, and `2.0 s in 5%` if that is so in a minority of its last calls. `-` if
    none is late, or if it is unknown."""
    found = [lag for view in views if (lag := _find_lag(model, view)) is not None]
    pace, latest = model.poll.paces.get(model.job.id), max(found, key=lambda lag: lag.median_seconds, default=None)
    if pace is None or latest is None or latest.median_seconds < _LEAST_SECONDS:
        return "-"
    return _describe_lag(latest) + (f" in {pace.telling_calls / pace.calls:.0%}" if pace.of_few else "")


def facts(model: ViewModel, view: RankView) -> Iterator[str]:
    """What is known of a rank's batches and calls, in a few words each."""
    rates = (("batches", model.batch_rate(view)), ("calls", _find_rate(model, view)))
    yield from (f"{frequency(rate.per_second)} {what}/s in {duration(rate.seconds)}" for what, rate in rates if rate)
    ages = [calls.age_seconds for calls in view.calls if calls.source == "recorder" and calls.age_seconds is not None]
    if ages:  # of any group: the one that a rank used last is often not the default group
        yield f"last call {duration(min(ages))} ago"
    pace, lag = model.poll.paces.get(model.job.id), _find_lag(model, view)
    if pace is not None and lag is not None:  # of all calls, whichever of them tell who is late
        before = " before it" * bool(ages)  # and not since
        yield f"waited in collectives {lag.waited_share:.0%} of the time{before}{apart_from_waits(*lag.long_waits)}"


def pace_facts(model: ViewModel, view: RankView) -> Iterator[str]:
    """How a rank came to the last calls of the run that can be compared, in a few words each."""
    pace, lag = model.poll.paces.get(model.job.id), _find_lag(model, view)
    if pace is None or lag is None:
        return
    which = f"the last {pace.calls} calls ({duration(pace.seconds)})"  # a poll reads fewer of them than a first look
    if pace.telling_calls < pace.calls:  # a fact of its own, which a narrow terminal does not cut
        yield f"of {which}, the ranks came the furthest apart in {pace.telling_calls} ({list_operations(pace.names)})"
        which = "those"
    late = f", {_describe_lag(lag)} after the others" if lag.median_seconds >= _LEAST_SECONDS else ""
    yield f"came last in {lag.last_share:.0%} of {which}{late}"


def _find_rate(model: ViewModel, view: RankView) -> Rate | None:
    """That of the calls in all groups; of one that it seldom calls, nothing may be known. A group without a new call adds none,
    and so tells the time only if no group has one."""
    host = model.run.host.get(view.host)
    rates = [rate for _, calls in model.run.ledger.of_rank(view.rank) if (rate := _rate_of(calls, host)) is not None]
    if rising := [rate for rate in rates if rate.per_second]:
        return Rate(sum(rate.per_second for rate in rising), max(rate.seconds for rate in rising))
    return min(rates, default=None)


def _rate_of(calls: RankCalls, host: Host | None) -> Rate | None:
    """The rate of a rank's calls by their times; by their number in the window, if the record of times is shorter than that."""
    if calls.made is None or calls.made_before is None or host is None or not host.window_seconds:
        return None
    if calls.made_us and calls.last_age_seconds is not None:
        looked_us = calls.made_us[-1] + round(calls.last_age_seconds * 1e6)
        if calls.whole or looked_us - calls.made_us[0] > host.window_seconds * 1e6:
            return find_rate(_list_points(calls.made_us, looked_us), 0.0)
    return Rate(max(0, calls.made - calls.made_before) / host.window_seconds, host.window_seconds)


def _list_points(made_us: Sequence[int], looked_us: int) -> list[tuple[float, int]]:
    """(seconds before the look, at most 0; calls made): the last calls or some of them, and the beginning of the last seconds.
    Both ascend, also if the clock was set back meanwhile."""
    begin = bisect_right(made_us, looked_us - SECONDS * 1e6)
    first = max(0, begin - _MOST_TIMES // 8)
    numbers = [*range(len(made_us) - 1, first - 1, -((len(made_us) - first) // _MOST_TIMES + 1))]
    times = [min(0.0, (made_us[number] - looked_us) / 1e6) for number in numbers]
    if begin:
        numbers.append(begin - 1)
        times.append(-SECONDS)
    return list(zip(sorted(times), sorted(numbers), strict=True))


def _find_lag(model: ViewModel, view: RankView) -> Lag | None:
    pace = model.poll.paces.get(model.job.id)
    return next((lag for lag in pace.lags if lag.rank == view.rank), None) if pace is not None else None


def _describe_lag(lag: Lag) -> str:
    late = lag.median_seconds
    return milliseconds(late) if late < 1 else duration(late)
