"""What the ranks did before the look, by the times of their calls: when they computed, and when they waited for a later rank.

A call waits from the time at which its rank made it until the last rank made the call of the same number, and at most until its
rank made the next one. In between, a rank computes. Before its oldest recorded call nothing is known of it. After its last call
it waits if that is not complete; otherwise it computes for as long as it did between two earlier calls, and from then on
nothing is known. So it is before a call by which a rank that takes requests from outside hands them out: it may have had none.
Times are seconds relative to the look at the rank's own host, so all are at most 0; calls of several hosts are compared only if
`lags` knows how far their clocks differ.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from hangdoc.reasoning.ledger.lags import clock_offsets
from hangdoc.reasoning.model.ledger import Ledger, RankCalls
from hangdoc.torch_facts import call_names

Activity = Literal["computing", "moving", "waiting", "unseen"]
"""`moving`: it made calls, and for how long it waited in them is unknown, because the clocks of its hosts can't be compared."""

_ACTIVE_SHARE = 2 / 3
"""Where a run has stood still for longer than the record before that, the share of cells for the time before."""


class Stretch(NamedTuple):
    """What a rank did for some time."""

    begin: float
    end: float
    """Seconds relative to the look."""
    activity: Activity


class RankPast(NamedTuple):
    """The past of one rank."""

    stretches: tuple[Stretch, ...]
    """Without gaps, from its oldest recorded call to the look."""
    last_call: float
    """When it made its last call, in seconds relative to the look."""
    calls: int
    gaps: tuple[float, ...] = ()
    """Seconds from the end of each wait for later ranks, or from each call without one, until its next call."""


class Past(NamedTuple):
    """The past of a run."""

    ranks: dict[int, RankPast]

    @property
    def begin(self) -> float:
        """The oldest recorded call of any rank."""
        return min(rank.stretches[0].begin for rank in self.ranks.values())

    @property
    def last_call(self) -> float:
        """The last call of any rank."""
        return max(rank.last_call for rank in self.ranks.values())


class Share(NamedTuple):
    """What a rank did in a cell, and for which share of it a rank of which something is known did not wait."""

    activity: Activity
    progress: float
    """0 to 1; 0 or 1 only if that is exact."""


class _Made(NamedTuple):
    at_us: float
    until_us: float
    """When the last rank made the same call; infinite if it is not complete."""
    hands_out: bool = False
    """Whether the rank hands out by it what it was asked from outside: before it, the rank may have been idle."""


def past_of(ledger: Ledger, looks_us: Mapping[str, int], served: Collection[int] = ()) -> Past | None:
    """The past of all ranks whose calls are recorded. `looks_us`: by host, its wall clock at the look, in microseconds since
    1970. `served`: the ranks that may take requests from outside. None without such a record."""
    made: dict[int, list[_Made]] = {}
    hosts: dict[int, str] = {}
    uncertain: set[int] = set()
    for group in ledger.groups:
        recorded = {rank: calls for rank, calls in group.ranks.items() if calls.numbers and calls.host in looks_us}
        offsets = clock_offsets(group)
        for rank, calls in recorded.items():
            hosts[rank] = calls.host
            if offsets is None and any(other.host != calls.host for other in recorded.values()):
                uncertain.add(rank)
        for rank, at in _calls_of(recorded, offsets, served):
            made.setdefault(rank, []).append(at)
    ranks = {
        rank: _rank_past(sorted(calls), looks_us[hosts[rank]], compared=rank not in uncertain)
        for rank, calls in sorted(made.items())
    }
    return Past(ranks) if ranks else None


def _calls_of(
    recorded: Mapping[int, RankCalls], offsets: Mapping[str, float] | None, served: Collection[int]
) -> Iterator[tuple[int, _Made]]:
    """(rank, call) of a group, by the clock of the rank's host. Without `offsets`, hosts are not compared."""
    last: dict[tuple[str, int], float] = {}
    for calls in recorded.values():
        ahead = offsets.get(calls.host, 0.0) if offsets is not None else 0.0
        host = calls.host if offsets is None else ""
        for number, at in zip(calls.numbers, calls.made_us, strict=True):
            last[host, number] = max(at - ahead, last.get((host, number), at - ahead))
    for rank, calls in recorded.items():
        ahead = offsets.get(calls.host, 0.0) if offsets is not None else 0.0
        host = calls.host if offsets is None else ""
        # The record names only the first few calls that are not complete.
        pending = min((waiting.number for waiting in calls.pending), default=float("inf"))
        for number, at, call in zip(calls.numbers, calls.made_us, calls.calls, strict=True):
            until = float("inf") if number >= pending else last[host, number] + ahead
            yield rank, _Made(at, until, rank in served and call.op in call_names.DISTRIBUTES)


def _rank_past(made: Sequence[_Made], look_us: int, *, compared: bool) -> RankPast:
    computing: Activity = "computing" if compared else "moving"
    waiting: Activity = "waiting" if compared else "moving"
    stretches: list[Stretch] = []

    def add(begin: float, end: float, activity: Activity) -> None:
        begin, end = min(begin, 0.0), min(end, 0.0)
        if begin < end:
            if stretches and stretches[-1].activity == activity:
                stretches[-1] = stretches[-1]._replace(end=end)
            else:
                stretches.append(Stretch(begin, end, activity))

    between: list[tuple[float, float, float, bool]] = []
    for call, following in pairwise(made):
        at, after = (call.at_us - look_us) / 1e6, (following.at_us - look_us) / 1e6
        between.append((at, min(max((call.until_us - look_us) / 1e6, at), after), after, following.hands_out))
    longest = max((after - until for _, until, after, hands_out in between if not hands_out), default=0.0)
    for at, until, after, hands_out in between:
        known = min(after, until + longest) if hands_out else after
        add(at, until, waiting)
        add(until, known, computing)
        add(known, after, "unseen")
    at = min(0.0, (made[-1].at_us - look_us) / 1e6)
    if any(call.until_us == float("inf") for call in made):
        add(at, 0.0, "waiting")
    else:
        until = max((made[-1].until_us - look_us) / 1e6, at)
        add(at, until, waiting)
        add(until, until + longest, computing)
        add(until + longest, 0.0, "unseen")
    gaps = tuple(after - until for _, until, after, _ in between)
    return RankPast(tuple(stretches) or (Stretch(at, 0.0, "unseen"),), at, len(made), gaps)


def edges_of(past: Past, most: int, *, until: float = 0.0, least_seconds: float = 0.0) -> tuple[float, ...]:
    """The edges of at most `most` cells, ascending, from the oldest recorded call to `until` (seconds relative to the look). They
    are equally long and aligned to `until`; where the run has stood still for most of the time, those since its last call are
    longer than those before. No cell is shorter than `least_seconds`. Empty if nothing is recorded before `until`."""
    begin, last = past.begin, min(past.last_call, until)
    if begin >= until:
        return ()
    quiet = until - last
    if quiet <= (until - begin) / 2:
        return tuple(_backward(until, begin, most, least_seconds))[::-1]
    active = max(1, round(most * _ACTIVE_SHARE)) if last > begin else 0
    since = list(_backward(until, last, max(1, most - active), least_seconds))
    if not active:
        return tuple(since[::-1])
    return (*list(_backward(since[-1], begin, active, least_seconds))[::-1], *since[-2::-1])


def _backward(end: float, begin: float, most: int, least_seconds: float) -> Iterator[float]:
    """The edges of equal cells from `end` back to `begin` or just before it."""
    length = max((end - begin) / most, least_seconds, 1e-6)
    count = min(most, max(1, -int(-(end - begin) / length // 1))) if end > begin else 0
    yield from (end - at * length for at in range(count + 1))


def shares_of(rank: RankPast, edges: Sequence[float]) -> tuple[Share, ...]:
    """What a rank did in each cell between two edges."""
    sums: list[dict[Activity, float]] = [{} for _ in edges[1:]]
    for begin, end, activity in rank.stretches:
        at = max(0, bisect_right(edges, begin) - 1)
        while at < len(sums) and edges[at] < end:
            part = min(end, edges[at + 1]) - max(begin, edges[at])
            if part > 0:
                sums[at][activity] = sums[at].get(activity, 0.0) + part
            at += 1
    return tuple(map(_share, sums))


def _share(seconds: Mapping[Activity, float]) -> Share:
    seen: dict[Activity, float] = {activity: length for activity, length in seconds.items() if activity != "unseen"}
    if not seen or sum(seen.values()) < seconds.get("unseen", 0.0):
        return Share("unseen", 0.0)
    total, waited = sum(seen.values()), seen.get("waiting", 0.0)
    return Share(max(seen, key=lambda activity: seen[activity]), 1 - waited / total if waited < total else 0.0)
