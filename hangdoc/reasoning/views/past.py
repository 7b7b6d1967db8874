"""What happened to a run before the look, by torch's record of calls: as figures, and as a timeline."""

from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from hangdoc.diagnosis import Diagnosis, PastView
from hangdoc.reasoning.causes.pace import call_rates, recorded_past, run_pace, stragglers
from hangdoc.reasoning.ledger.past import edges_of, shares_of
from hangdoc.reasoning.model.ledger import RankCalls
from hangdoc.reasoning.model.run import Run
from hangdoc.timeline import Past, Recorder, Timeline

MOST_CELLS = 120
_EARLIER_SECONDS = 1.0


def past_view(run: Run, *, hung: bool) -> PastView | None:
    """The past of a run in figures; None if fewer than 10 calls of two ranks can be compared. Ranks that make calls rarely have
    not stopped: the last call must be longer ago than any time between two calls, or the run hangs."""
    pace = run_pace(run)
    recorded = _recorded(run)
    if pace is None or not recorded:
        return None
    ages = {calls.rank: _age(run, calls, calls.made_us[-1]) for calls in recorded}
    newest = min(ages.values())
    longest = max((later - at for calls in recorded for at, later in pairwise(calls.made_us)), default=0) / 1e6
    moved = any(calls.moved for calls in recorded)
    stopped = not moved and (hung or newest > longest)
    oldest = max(ages.values())
    first = tuple(sorted(rank for rank, age in ages.items() if oldest - age < _EARLIER_SECONDS))
    earlier = stopped and oldest - newest >= _EARLIER_SECONDS and len(first) < len(ages)
    outstanding, rates = stragglers(run, pace), call_rates(run, [pace])
    slowest, long = outstanding.slow[0] if outstanding is not None else None, pace.long_waits
    return PastView(
        seconds=round(max(_age(run, calls, calls.made_us[0]) for calls in recorded), 1),
        calls_per_second=round(rates.most, 2),
        least_calls_per_second=round(rates.least, 2) if rates.least is not None else None,
        stopped_us=max(calls.made_us[-1] for calls in recorded if ages[calls.rank] == newest) if stopped else None,
        stopped_seconds_ago=round(newest, 1) if stopped else None,
        first_stopped=first if earlier else (),
        first_stopped_seconds=round(oldest - newest, 1) if earlier else None,
        slowest=slowest.rank if slowest is not None else None,
        last_share=round(slowest.last_share, 3) if slowest is not None else None,
        late_seconds=round(slowest.median_seconds, 6) if slowest is not None else None,
        others_waited_share=round(median(lag.waited_share for lag in outstanding.others), 3)
        if outstanding is not None
        else None,
        calls=pace.telling_calls,
        of_calls=pace.calls,
        operations=tuple(sorted(pace.names)),
        long_wait_seconds=round(long.seconds, 1) if long.number else None,
        long_waits=long.number,
        long_wait_ranks=long.ranks,
        rate_seconds=round(pace.span_seconds, 3),
    )


def _recorded(run: Run) -> list[RankCalls]:
    """The calls of each rank in the group in which it made its last one."""
    last: dict[int, RankCalls] = {}
    for group in run.ledger.groups:
        for rank, calls in group.ranks.items():
            before = last.get(rank)
            if calls.made_us and calls.host in run.host and run.host[calls.host].wall_us is not None:
                last[rank] = calls if before is None or before.made_us[-1] < calls.made_us[-1] else before
    return list(last.values())


def _age(run: Run, calls: RankCalls, at_us: int) -> float:
    return max(0.0, ((run.host[calls.host].wall_us or at_us) - at_us) / 1e6)


def waited_shares(run: Run) -> dict[int, float]:
    """By rank that made a call in the window or came out of one: for which share of it the rank waited for a later one. Without
    ranks of which that is unknown."""
    moved = {calls.rank for group in run.ledger.groups for calls in group.ranks.values() if calls.moved}
    past = recorded_past(run) if moved else None
    waited: dict[int, float] = {}
    for rank in past.ranks if past is not None else ():
        host = run.host.get(run.ranks[rank].host)
        if past is not None and host is not None and host.window_seconds > 0:
            (share,) = shares_of(past.ranks[rank], (-host.window_seconds, 0.0))
            if share.activity in ("computing", "waiting") and (rank in moved or 0 < share.progress < 1):
                waited[rank] = 1 - share.progress
    return waited


def past_cells(run: Run, *, least_seconds: float = 0.0) -> Past | None:
    """What each rank of a run did before the window of the look, in at most 120 cells of at least `least_seconds`. None without a
    record that is older than the window."""
    past = recorded_past(run)
    if past is None:
        return None
    window = max((host.window_seconds for host in run.hosts), default=0.0)
    edges = edges_of(past, MOST_CELLS, until=-window, least_seconds=least_seconds)
    if len(edges) < 2:
        return None
    return Past(seconds=edges[1:], cells={rank: shares_of(of_rank, edges) for rank, of_rank in past.ranks.items()})


def timelines(diagnosis: Diagnosis, runs: Iterable[Run]) -> dict[str, Timeline]:
    """The timeline of each job by its id: the time before the look, and the look itself. Without jobs of which no record is
    older."""
    jobs = {job.id: job for job in diagnosis.jobs}
    by_job: dict[str, Timeline] = {}
    for run in runs:
        past = past_cells(run)
        if past is not None and run.id in jobs:
            recorder = Recorder()
            recorder.begin(0.0, past)
            recorder.add(0.0, jobs[run.id])
            by_job[run.id] = recorder.timeline()
    return by_job
