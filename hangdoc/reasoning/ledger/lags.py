"""Who comes late to the calls of a group, and what the pace is: by the times at which ranks made their calls.

A call completes when the last rank has made it. So the ranks that come early wait, and after it all ranks go on together: a
second call right after a synchronising one shows no lag. Therefore lags are taken from the places of a step at which ranks are
the furthest apart. Times are those of the hosts' wall clocks. The difference of two clocks is taken from the calls right after
one that all ranks waited for; without such calls it is unknown, because a slow host looks like one whose clock is ahead, and only
the ranks of one host are compared.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from hangdoc.reasoning.model.ledger import GroupCalls, RankCalls, Signature, signature

_LEAST_CALLS, _FEW_CALLS = 10, 3
"""A place of a step was reached often enough to compare its calls. If no place was, as in a young run, few are enough for those
with most of the waiting."""
_LAST_CALLS = 600
_SHARE_OF_WIDEST = 0.5
"""A place counts if its ranks are at least this share of the widest place's distance apart."""
_TOGETHER_US = 2_000.0
"""Ranks of a host that arrive within this time come together. The difference of clocks must be certain to within this time."""
_P90 = 0.9
_RATE_US, _RATE_CALLS = 5_000_000.0, 20
_LONG_PAUSE = 0.2
"""A pause that takes this share of the time in which calls are counted decides how many they are."""
_LONG_WAIT, _SHARE_OF_LONGEST = 0.1, 0.5
"""A few waits that take a smaller share of the time decide no share of it. Each is at least this share of the longest one."""


class LongWaits(NamedTuple):
    """One wait for a later rank, or a few for the same ranks, that are longer than all other waits together: as for a rank that
    was stopped for a while, or that alone writes checkpoints. There may be none."""

    number: int
    seconds: float
    """The longest one."""
    ranks: tuple[int, ...]
    """Those that came late to each of these calls; empty if more came late than waited."""


class Lag(NamedTuple):
    """How late a rank is."""

    rank: int
    median_seconds: float
    """Behind the median of the other ranks, in one of the calls that tell: that in the middle. Below 0 if it is early."""
    p90_seconds: float
    last_share: float
    """Share of the calls that tell in which it was the last."""
    waited_share: float
    """Share of the time that it waited for a later rank. Without that of `long_waits`."""
    long_waits: LongWaits = LongWaits(0, 0.0, ())
    """Those of the pace for most of which this rank too waited."""


class Pace(NamedTuple):
    """The pace of a group."""

    lags: tuple[Lag, ...]
    """By rank, of those that can be compared."""
    calls: int
    """Aligned calls that were looked at."""
    seconds: float
    """From the first of them to the last."""
    telling_calls: int
    operations: frozenset[str]
    """Of the calls that tell, as they are recorded."""
    names: frozenset[str]
    """The same, by the names that they have in a stack."""
    spans: dict[int, tuple[float, float]]
    """By rank, from when to when its calls per second are counted, in microseconds of its own clock: from the time at which the
    last rank has made one call to that of another one. It is the same time for all ranks."""
    told_us: dict[int, float]
    """By rank, when it made the last of the calls that tell, in microseconds of its own clock."""
    long_waits: LongWaits
    clocks: str | None
    """What was assumed about the clocks of several hosts, as a clause; None for one host."""

    @property
    def of_few(self) -> bool:
        """Whether a minority of the calls tells who is late. In the others, all ranks may come together."""
        return 2 * self.telling_calls < self.calls

    @property
    def span_seconds(self) -> float:
        """How long `spans` are."""
        return next(((end - start) / 1e6 for start, end in self.spans.values()), 0.0)

    @property
    def slowest(self) -> Lag | None:
        """The rank that is latest."""
        return max(self.lags, key=lambda lag: (lag.median_seconds, -lag.rank), default=None)


class _Aligned(NamedTuple):
    numbers: tuple[int, ...]
    times: dict[int, list[float]]
    """For each rank, when it made the calls of `numbers`, in microseconds."""
    sites: list[Signature]
    names: list[str]
    """Of the calls, as in a stack."""


def pace(group: GroupCalls) -> Pace | None:
    """The pace of a group; None if fewer than 10 calls of at least two ranks can be aligned. A rank that only answers the others'
    calls, because it has no more data, sets no pace and is not kept waiting."""
    recorded = {rank: calls for rank, calls in group.ranks.items() if calls.numbers and not calls.calls[-1].by_join}
    clocks, offsets = _clocks(recorded)
    if offsets is None:
        largest = max(_by_host(recorded).values(), key=len, default=[])
        compared = {rank: recorded[rank] for rank in largest}
    else:
        compared = recorded
    aligned = _aligned(compared, offsets or {})
    if aligned is None:
        return None
    ordered = [sorted(times) for times in zip(*aligned.times.values(), strict=True)]
    long_waits = _find_long_waits(aligned, ordered)
    telling = _telling(aligned, [wait.at for wait in long_waits])
    calls = len(aligned.numbers)
    last = Counter(max(aligned.times, key=lambda rank: aligned.times[rank][at]) for at in telling)
    first = aligned.times[min(aligned.times)]
    start, end = _find_span(aligned.sites, [times[-1] for times in ordered])
    return Pace(
        lags=tuple(_lag(rank, aligned, ordered, telling, last[rank], long_waits) for rank in sorted(aligned.times)),
        calls=calls,
        seconds=(max(first) - min(first)) / 1e6,
        telling_calls=len(telling),
        operations=frozenset(aligned.sites[at][0] for at in telling),
        names=frozenset(aligned.names[at] for at in telling),
        spans={
            rank: (start + ahead, end + ahead)
            for rank, made in compared.items()
            for ahead in ((offsets or {}).get(made.host, 0.0),)
        },
        told_us={
            rank: aligned.times[rank][telling[-1]] + (offsets or {}).get(made.host, 0.0)
            for rank, made in compared.items()
            if telling and rank in aligned.times
        },
        long_waits=_sum_up(long_waits, len(aligned.times)),
        clocks=clocks,
    )


def call_rate(columns: Iterable[RankCalls], span: tuple[float, float]) -> float:
    """Calls per second of a rank in all its groups, from the first of two times of its own clock to the second. `columns`: its
    calls, one for each group."""
    first, last = span
    made = 0
    for calls in columns:
        start, end = bisect_right(calls.made_us, first), bisect_right(calls.made_us, last)
        made += len(set(calls.numbers[start:end]))  # coalesced calls share one
    return made * 1e6 / (last - first) if last > first else 0.0


def _find_span(sites: Sequence[Signature], times: Sequence[float]) -> tuple[float, float]:
    """The last seconds, or those of the last calls if these are few: older ones may be of another phase. Where long pauses
    between bursts of calls come again, it is from the end of one to the end of another, unless the last burst is longer than the
    time from one to the next: then it is another phase. `times`: those of the calls at `sites`."""
    times = times[_count_first_calls(sites, times) :]
    at = min(bisect_left(times, times[-1] - _RATE_US), max(0, len(times) - _RATE_CALLS))
    first = max(0, at - 1)
    pauses = [0.0, *(later - earlier for earlier, later in pairwise(times))]
    longest = max(pauses[first + 1 :])
    if longest >= _LONG_PAUSE * (times[-1] - times[first]):
        ends = [end for end, pause in zip(times, pauses, strict=True) if pause >= longest / 2]
        if len(ends) > 1 and times[-1] - ends[-1] <= ends[-1] - ends[-2]:
            before = bisect_right(ends, ends[-1] - _RATE_US) - 1
            return ends[max(0, before)], ends[-1]
    return times[at], times[-1]


def _count_first_calls(sites: Sequence[Signature], times: Sequence[float]) -> int:
    """How many calls there are up to the last one whose like does not come in the second half of the time: those of a young run
    that is set up. 0 if less than that half would remain."""
    half = bisect_left(times, (times[0] + times[-1]) / 2)
    again = set(sites[half:])
    count = max((at + 1 for at in range(half) if sites[at] not in again), default=0)
    return count if count < half else 0


def _aligned(recorded: dict[int, RankCalls], offsets: dict[str, float]) -> _Aligned | None:
    if len(recorded) < 2:
        return None
    times = {
        rank: {
            number: at - offsets.get(calls.host, 0.0)
            for number, at in zip(reversed(calls.numbers), reversed(calls.made_us), strict=True)
        }
        for rank, calls in recorded.items()
    }
    made = (frozenset(times[rank]).difference(call.number for call in recorded[rank].pending) for rank in times)
    common = frozenset.intersection(*made)
    numbers = tuple(sorted(common))[-_LAST_CALLS:]
    if len(numbers) < _LEAST_CALLS:
        return None
    called = recorded[min(recorded)].by_number()
    return _Aligned(
        numbers,
        {rank: [column[number] for number in numbers] for rank, column in times.items()},
        [signature(called[number]) for number in numbers],
        [called[number].name for number in numbers],
    )


def _telling(aligned: _Aligned, long_waits: Sequence[int]) -> list[int]:
    """The positions of the calls whose ranks arrive the furthest apart. `long_waits`: those of the long ones. Where nothing
    repeats, several of these tell, and a single one does not."""
    columns = list(aligned.times.values())
    apart = [_distance(columns, position) for position in range(len(aligned.numbers))]
    if places := _places(aligned):
        return _at_widest(places, apart)
    few = _at_widest(_places(aligned, _FEW_CALLS), apart)
    if sum(apart[position] for position in few) > sum(apart) / 2:
        return few
    if len(long_waits) > 1:
        return list(long_waits)
    rest = [at for at in range(len(apart)) if at not in long_waits]  # nothing repeats, or only one call does
    enough = _SHARE_OF_WIDEST * sorted(apart[at] for at in rest)[int(len(rest) * _P90)]
    return [at for at in rest if apart[at] >= enough]


def _at_widest(places: Sequence[Sequence[int]], apart: Sequence[float]) -> list[int]:
    """The positions of the places at which ranks typically arrive the furthest apart."""
    typical = [median(apart[position] for position in positions) for positions in places]
    enough = _SHARE_OF_WIDEST * max(typical, default=0.0)
    return sorted(
        position
        for positions, distance in zip(places, typical, strict=True)
        if distance >= enough
        for position in positions
    )


def _places(aligned: _Aligned, least: int = _LEAST_CALLS) -> list[list[int]]:
    """The positions of the calls at each place of a step that was reached often enough: a call site, which of its calls in a row,
    and the site before that row. Only the first one of a loop over gradients, buckets or layers shows who is late."""
    at_place: dict[tuple[Signature, int, Signature | None], list[int]] = {}
    in_row, row, before_row = -1, aligned.sites[-1], None  # what ends a step comes before the next one
    for position, site in enumerate(aligned.sites):
        if site == row:
            in_row += 1
        else:
            in_row, row, before_row = 0, site, row
        at_place.setdefault((site, in_row, before_row), []).append(position)
    return [positions for positions in at_place.values() if len(positions) >= least]


def _distance(columns: Sequence[Sequence[float]], position: int) -> float:
    times = [column[position] for column in columns]
    return max(times) - min(times)


class _LongWait(NamedTuple):
    at: int
    """The position of its call."""
    us: float
    late: frozenset[int]
    """The ranks that did not wait for most of it."""


def _find_long_waits(aligned: _Aligned, ordered: Sequence[Sequence[float]]) -> list[_LongWait]:
    """The waits that are longer than all others together, in the order of their calls: the longest, and those that are nearly as
    long if they are few, not those of most steps, and for the same ranks. [] if there are none, or if they are short.
    `ordered`: at each call, the times of all ranks, ascending."""
    waits = _list_waits([times[0] for times in ordered], ordered)
    longest = max(waits)
    places = [at for at, us in enumerate(waits) if us >= _SHARE_OF_LONGEST * longest]
    most = max(Counter(aligned.sites).values())  # calls of one kind: about as many as there were steps
    if len(places) < min(_LEAST_CALLS, most / 2):
        long = [_long_wait(aligned, ordered, at, waits[at]) for at in places]
        if len({wait.late for wait in long}) == 1 and _outweigh(long, waits, ordered):
            return long
    single = [_long_wait(aligned, ordered, at, waits[at]) for at in (waits.index(longest),)]
    return single if _outweigh(single, waits, ordered) else []


def _outweigh(long: Iterable[_LongWait], waits: Iterable[float], ordered: Sequence[Sequence[float]]) -> bool:
    """Whether these waits are longer than all others together, and take enough of the time."""
    us = sum(wait.us for wait in long)
    return us > sum(waits) / 2 and us >= _LONG_WAIT * (ordered[-1][-1] - ordered[0][0])


def _long_wait(aligned: _Aligned, ordered: Sequence[Sequence[float]], at: int, us: float) -> _LongWait:
    last = ordered[at][-1]
    return _LongWait(at, us, frozenset(rank for rank, times in aligned.times.items() if last - times[at] <= us / 2))


def _sum_up(long: Sequence[_LongWait], ranks: int) -> LongWaits:
    """These long waits of so many ranks."""
    if not long:
        return LongWaits(0, 0.0, ())
    late = long[0].late  # those of a few are the same
    return LongWaits(
        len(long), max(wait.us for wait in long) / 1e6, tuple(sorted(late)) if 2 * len(late) <= ranks else ()
    )


def _list_waits(made: Sequence[float], ordered: Sequence[Sequence[float]]) -> list[float]:
    """For how long who makes each call at `made` waits for the last rank. Calls may overlap: no time is counted twice."""
    waits, end = [], 0.0
    for at, times in zip(made, ordered, strict=True):
        waits.append(max(0.0, times[-1] - max(at, end)))
        end = max(end, times[-1])
    return waits


def _lag(
    rank: int,
    aligned: _Aligned,
    ordered: Sequence[Sequence[float]],
    telling: Sequence[int],
    last: int,
    long_waits: Sequence[_LongWait],
) -> Lag:
    """`ordered`: at each call, the times of all ranks, ascending. `last`: in how many of the calls that tell it was the last."""
    own = aligned.times[rank]
    late = sorted(own[at] - _median_without(ordered[at], own[at]) for at in telling)
    waits, seconds = _list_waits(own, ordered), own[-1] - own[0]
    waited_long = [wait for wait in long_waits if waits[wait.at] > wait.us / 2]
    for wait in waited_long:
        end = ordered[wait.at][-1]
        # Of that at the first or the last call, a rank that came later has only a part in its time.
        within = min(own[-1], end) - max(own[0], end - wait.us)
        waits[wait.at], seconds = 0.0, seconds - max(0.0, within)
    return Lag(
        rank=rank,
        median_seconds=median_low(late) / 1e6,
        p90_seconds=late[min(len(late) - 1, int(len(late) * _P90))] / 1e6,
        last_share=last / len(telling),
        waited_share=min(1.0, sum(waits) / seconds) if seconds > 0 else 0.0,
        long_waits=_sum_up(waited_long, len(aligned.times)),
    )


def _median_without(ordered: Sequence[float], own: float) -> float:
    """The median of some ordered numbers without one of them."""
    at, rest = bisect_left(ordered, own), len(ordered) - 1
    low, high = (rest - 1) // 2, rest // 2
    return (ordered[low + (low >= at)] + ordered[high + (high >= at)]) / 2


# --- clocks ----------------------------------------------------------------------------------------------------------


def _by_host(recorded: dict[int, RankCalls]) -> dict[str, list[int]]:
    hosts: dict[str, list[int]] = {}
    for rank, calls in recorded.items():
        hosts.setdefault(calls.host, []).append(rank)
    return hosts


def clock_offsets(group: GroupCalls) -> dict[str, float] | None:
    """How far the clock of each host is ahead of the first one's, in microseconds: empty for one host, None if it is unknown."""
    return _clocks({rank: calls for rank, calls in group.ranks.items() if calls.numbers})[1]


def _clocks(recorded: dict[int, RankCalls]) -> tuple[str | None, dict[str, float] | None]:
    """(what is known of the hosts' clocks, how far each is ahead of the first host's in microseconds or None)."""
    hosts = _by_host(recorded)
    if len(hosts) < 2:
        return None, {}
    unknown = "the difference of the hosts' clocks is unknown, so only ranks of one host are compared", None
    aligned = _aligned(recorded, {})
    if aligned is None:
        return unknown
    after_sync = [at for place in _places(aligned) if (at := _follow_a_synchronising_call(aligned, hosts, place))]
    first, *rest = hosts
    offsets = {first: 0.0}
    for host in rest:
        bounds = [
            bound
            for positions in after_sync
            if (bound := _difference(aligned, hosts[first], hosts[host], positions)) is not None
        ]
        low, high = max((low for low, _ in bounds), default=1.0), min((high for _, high in bounds), default=0.0)
        if low > high:  # no place shows it, or two places contradict each other
            return unknown
        offsets[host] = (low + high) / 2
    widest = max(abs(offset) for offset in offsets.values()) / 1e3
    return (
        f"the hosts' clocks differ by up to {widest:.1f} ms, by the calls right after one that all waited for",
        offsets,
    )


def _follow_a_synchronising_call(aligned: _Aligned, hosts: dict[str, list[int]], positions: Sequence[int]) -> list[int]:
    """Those of the positions of a place right after calls in which each rank waits until the last one has come: a barrier, or a
    call to which two ranks of one host came apart, and which they left together. Calls that overlap, as those of DDP's
    buckets do, keep their ranks apart. [] if these are too few."""
    later = [at for at in positions if at and aligned.numbers[at] == aligned.numbers[at - 1] + 1]
    if len(later) < _LEAST_CALLS:
        return []
    waited = all(aligned.sites[at - 1][0] == "barrier" for at in later) or any(
        _typical_distance(aligned, ranks, [at - 1 for at in later])
        > _TOGETHER_US
        >= _typical_distance(aligned, ranks, later)
        for ranks in hosts.values()
    )
    return later if waited else []


def _typical_distance(aligned: _Aligned, ranks: Sequence[int], positions: Iterable[int]) -> float:
    columns = [aligned.times[rank] for rank in ranks]
    return median(_distance(columns, at) for at in positions)


def _difference(
    aligned: _Aligned, mine: Sequence[int], theirs: Sequence[int], positions: Sequence[int]
) -> tuple[float, float] | None:
    """How far the clock of `theirs` is ahead of that of `mine`, at least and at most. The rank that came last to the call before
    these positions tells how much time passed between the two calls, so no rank made the second one earlier or later by more.
    None if that is too long, or varies."""
    passed = median(min(column[at] - column[at - 1] for column in aligned.times.values()) for at in positions)
    ahead = [
        median(aligned.times[rank][at] for rank in theirs) - median(aligned.times[rank][at] for rank in mine)
        for at in positions
    ]
    middle = median(ahead)
    varies = median(abs(difference - middle) for difference in ahead)
    uncertain = max(passed, varies)
    return (middle - uncertain, middle + uncertain) if uncertain <= _TOGETHER_US else None
