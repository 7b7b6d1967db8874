"""What sets the pace of a run: late ranks, and why they are; more threads than cores; a slow link."""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.ledger import lags
from hangdoc.reasoning.ledger.lags import Lag, Pace
from hangdoc.reasoning.ledger.past import Past, past_of, shares_of
from hangdoc.reasoning.model.ledger import GroupCalls
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run, once
from hangdoc.reasoning.ranks.card import card_of, slowed_by
from hangdoc.reasoning.ranks.movement import cores_used, kernel_thread, share_without_core
from hangdoc.snapshot import Clocks, Connection, Host, Loops, Machine, Process, Runtime
from hangdoc.torch_facts import call_names
from hangdoc.torch_facts.thread_names import is_of_library

_LAST, _WAITED = 0.75, 0.25
"""Stragglers are the last in this share of the calls, and for this share of the time the others wait for a later rank."""
_BY_CHANCE = 3.0
"""In few calls, the share is this many standard deviations above that of ranks that are late by chance."""
_LATE_SECONDS = 0.001
"""A smaller lag is one of the scheduler."""
AS_LATE = 0.5
"""Ranks with this share of the slowest rank's lag are stragglers too."""

_ABOUT_AS_MANY = 0.8
"""Who makes at least this share of the calls per second of another rank makes about as many."""
_MOVES = 10
"""So many steps in the window tell a rate. One of a slow run tells none."""
_TELLING_CALLS, _TELLING_SECONDS = 10, 2.0
"""In less time, what else runs on a host makes now one rank late, now another."""
_LAST_SECONDS = 5.0
"""Before the last call of all ranks."""
PUSHED = 40
"""Involuntary context switches per second of a thread that others preempt."""
_AT_WORK = 0.03
_BUSY, _COMPUTING = 0.6, 0.4
_LEAST_WINDOW = 0.3
_FAST_BYTES = 1_000_000_000
"""A link that delivers this many bytes per second is not slow, however busy it is."""
_STAGES = ("data", "forward", "backward", "optimizer")


class Stragglers(NamedTuple):
    """A minority of ranks for which the others wait in nearly all calls."""

    slow: tuple[Lag, ...]
    """The latest first."""
    others: tuple[Lag, ...]


def pace_of(run: Run) -> Pace | None:
    """The pace of the largest group of a run in which a rank made a call during the window; None for any other run, or without
    records."""
    return next(iter(paces_of(run)), None)


@once
def paces_of(run: Run) -> list[Pace]:
    """The same, and that of the groups beside it: as large, and without any of its ranks, as the rows of a mesh are."""
    moving = [group for group in run.ledger.groups if any(made.moved for made in group.ranks.values())]
    members = [(group, {rank for rank, made in group.ranks.items() if made.numbers}) for group in moving]
    members.sort(key=lambda member: -len(member[1]))
    beside, taken = [], set[int]()
    for group, ranks in members:
        if len(ranks) == len(members[0][1]) and not ranks & taken:
            beside.append(group)
            taken |= ranks
    largest = _largest_group(run)
    paces = (run_pace(run) if group is largest else lags.pace(group) for group in beside)
    return [measured for measured in paces if measured is not None]


@once
def run_pace(run: Run) -> Pace | None:
    """The pace of a run's largest group until now, whether it moves or not; None without records that can be compared."""
    largest = _largest_group(run)
    return lags.pace(largest) if largest is not None else None


def _largest_group(run: Run) -> GroupCalls | None:
    def count_ranks(group: GroupCalls) -> int:
        return sum(bool(calls.numbers) for calls in group.ranks.values())

    return max(run.ledger.groups, key=count_ranks, default=None)


def stragglers(run: Run, pace: Pace) -> Stragglers | None:
    """The ranks that set the pace; None if they are not fewer than the others, or do not stand out, or if a slow link sets it, or
    the scheduler: where ranks have more threads than there are cores, it makes now one late, now another."""
    latest = pace.slowest
    if latest is None or not tells_of_ranks(pace):
        return None
    if latest.median_seconds < _LATE_SECONDS or find_slow_link(run) is not None:
        return None
    if _may_have_been_idle(run, pace, latest):
        return None
    if (host := run.host.get(run.ranks[latest.rank].host)) is not None and find_crowd(run, host) is not None:
        return None
    slow = [lag for lag in pace.lags if lag.median_seconds >= AS_LATE * latest.median_seconds]
    others = tuple(lag for lag in pace.lags if lag not in slow)
    if len(slow) > len(others) or sum(lag.last_share for lag in slow) < _least_share(pace, len(slow)):
        return None
    if median(lag.waited_share for lag in others) < _WAITED or _waits_elsewhere(run, latest.rank):
        return None
    if _make_more_calls(run, pace, slow, others):
        return None
    return Stragglers(tuple(sorted(slow, key=lambda lag: -lag.median_seconds)), others)


def _least_share(pace: Pace, slow: int) -> float:
    """The share of the calls in which so many ranks are the last if they are stragglers, and not late by chance."""
    by_chance = slow / len(pace.lags)
    return max(_LAST, by_chance + _BY_CHANCE * sqrt(by_chance * (1 - by_chance) / pace.telling_calls))


def tells_of_ranks(pace: Pace) -> bool:
    """Whether enough was recorded to tell whether a rank slows the others."""
    return pace.telling_calls >= _TELLING_CALLS and pace.seconds >= _TELLING_SECONDS


def _may_have_been_idle(run: Run, pace: Pace, late: Lag) -> bool:
    """Whether a late rank hands out requests, as they come. It did not wait for one before the last call that tells if it had one
    then already, for longer than it is late."""
    if late.rank not in run.served or not pace.operations <= call_names.DISTRIBUTES:
        return False
    look_us, told_us = run.looks_us.get(run.ranks[late.rank].host), pace.told_us.get(late.rank)
    if look_us is None or told_us is None:
        return True
    before = run.request_seconds.get(late.rank, 0.0) - (look_us - told_us) / 1e6
    return before <= late.median_seconds


def _make_more_calls(run: Run, pace: Pace, slow: Iterable[Lag], others: Iterable[Lag]) -> bool:
    """Whether all ranks that are late make more calls than those that wait for them: then they have work in groups of their own,
    as the actors of reinforcement learning do while others wait for new weights."""
    most = max(_call_rate(run, pace, lag.rank) for lag in others)
    return most < _ABOUT_AS_MANY * min(_call_rate(run, pace, lag.rank) for lag in slow)


def _waits_elsewhere(run: Run, rank: int) -> bool:
    """Whether a rank that is late in one group waits for later ranks in its other groups: then they wait for each other in turns,
    as the player and the trainers of reinforcement learning do."""
    past = recorded_past(run)
    if past is None or rank not in past.ranks:
        return False
    (share,) = shares_of(past.ranks[rank], (past.last_call - _LAST_SECONDS, past.last_call))
    return share.activity in ("computing", "waiting") and 1 - share.progress >= _WAITED


@once
def recorded_past(run: Run) -> Past | None:
    """What its ranks did before the look; None without a record."""
    return past_of(run.ledger, run.looks_us, run.served)


def share_of_gaps(run: Run, rank: int, least_seconds: float) -> float:
    """Of the time in which a rank did not wait for later ones, the share that it was for so long between two calls."""
    past = recorded_past(run)
    gaps = past.ranks[rank].gaps if past is not None and rank in past.ranks else ()
    return sum(gap for gap in gaps if gap >= least_seconds) / (sum(gaps) or 1.0)


class CallRates(NamedTuple):
    """Calls per second of the ranks of a run, each in all its groups."""

    most: float
    least: float | None
    """Of the rank that makes the fewest; None if all make about as many as `most`."""


def call_rates(run: Run, paces: Iterable[Pace]) -> CallRates:
    """How fast ranks make their calls in all their groups. `paces`: those of the groups whose ranks are compared."""
    rates = [_call_rate(run, measured, rank) for measured in paces for rank in measured.spans]
    least, most = min(rates), max(rates)
    return CallRates(most, least if least < _ABOUT_AS_MANY * most else None)


def _call_rate(run: Run, pace: Pace, rank: int) -> float:
    return lags.call_rate((calls for _, calls in run.ledger.of_rank(rank)), pace.spans[rank])


def waited_share(pace: Pace) -> float:
    """The share of the time that the ranks waited for a later rank: the median of all ranks."""
    return median(lag.waited_share for lag in pace.lags)


def steps_per_second(run: Run) -> float | None:
    """By the counters of the ranks' loops in the window: the median of the ranks; None if they moved too little to tell."""
    rates = [rate for rank in run.living if (rate := _rate(rank)) is not None]
    return median(rates) if rates else None


def _rate(rank: Rank) -> float | None:
    """By the framework's count, or else by the batches of the innermost loop that moved."""
    process = rank.process
    if process is None or not isinstance(process.loops, Loops) or not process.loops.between_seconds:
        return None
    both = [
        *((count.done, count.done_before) for count in process.loops.counts if not count.batches),
        *((loader.done, loader.done_before) for loader in process.loops.loaders),
    ]
    moved = (done - before for done, before in both if done is not None and before is not None and done > before)
    steps = next(moved, 0)
    return steps / process.loops.between_seconds if steps >= _MOVES else None


# --- why a rank is late ---------------------------------------------------------------------------------------------------


def describe_slowness(run: Run, slow: Rank, other: Rank) -> str:
    """What makes a rank slower, as clauses; empty if nothing differs."""
    return "; ".join(filter(None, (_card(run, slow, other), _resources(slow, other), _stage(slow, other))))


def find_lack_of_core(slow: Sequence[Rank], rest: Sequence[Rank], others: Sequence[Lag]) -> float | None:
    """For which share of the time each of the late ranks, at least, was ready to run and waited for a core. None if one of them
    did so for less of it than the others wait for them, or no more than the others did: then the scheduler does not make them
    late."""
    late = [share_waiting_for_core(rank) for rank in slow]
    if not others or not late or None in late:
        return None
    least = min(share for share in late if share is not None)
    alike = median([share_waiting_for_core(rank) or 0.0 for rank in rest] or [0.0])
    return least if least >= max(_WAITED, median(lag.waited_share for lag in others)) and least > alike else None


def share_waiting_for_core(rank: Rank) -> float | None:
    """The share of the time for which the training thread of a rank was ready to run and had no core; None if unknown."""
    process = rank.process
    return share_without_core(process, kernel_thread(process, rank.thread)) if process is not None else None


def _card(run: Run, slow: Rank, other: Rank) -> str:
    """What holds down the clocks of the slow rank's card, and not those of the other one's."""
    mine, theirs = (card_of(run.host[rank.host], rank) if rank.host in run.host else None for rank in (slow, other))
    if mine is None or theirs is None or slowed_by(theirs) or not slowed_by(mine):
        return ""
    clocks = f": {mine.sm_clock_mhz} MHz, rank {other.rank}'s {theirs.sm_clock_mhz}" if mine.sm_clock_mhz else ""
    return f"its card slows itself down ({', '.join(slowed_by(mine))}{clocks})"


def _stage(slow: Rank, other: Rank) -> str:
    """The stage of the step in which the slow rank takes longer, if both ranks publish their stages. A fast rank waits for the
    others inside its backward, so its backward is not compared."""
    mine, theirs = _stages(slow), _stages(other)
    later = {name: mine[name] - theirs[name] for name in mine if name in theirs}
    name = max(later, key=lambda stage: later[stage], default=None)
    if name is None or later[name] <= 0.1 * sum(mine.values()):
        return ""
    return (
        f"its {name} stage takes {mine[name] * 1000:.1f} ms per step, rank {other.rank}'s {theirs[name] * 1000:.1f} ms"
    )


def _stages(rank: Rank) -> dict[str, float]:
    beacon = observed.beacon(rank.process)
    published = beacon.stages if beacon is not None else ()
    return dict(zip(_STAGES, published, strict=True)) if len(published) == len(_STAGES) else {}


def _resources(slow: Rank, other: Rank) -> str:
    """Which setting gives the slow rank less of its CPU."""
    mine, theirs = (observed.environment(rank.process).get("OMP_NUM_THREADS") for rank in (slow, other))
    if mine != theirs:
        return (
            f"OMP_NUM_THREADS is {mine or 'not set'} on rank {slow.rank} and {theirs or 'not set'} on rank {other.rank}"
        )
    few, many = _cores(slow.process), _cores(other.process)
    return f"rank {slow.rank} may use {few} cores, rank {other.rank} {many}" if few and many and few < many else ""


def _cores(process: Process | None) -> int | None:
    runtime = process.runtime if process is not None else None
    return runtime.cpus_allowed if isinstance(runtime, Runtime) else None


# --- more threads than cores ----------------------------------------------------------------------------------------------


class Crowd(NamedTuple):
    """Compute threads that preempt each other."""

    threads: dict[int, int]
    """How many, by rank."""
    cores: int
    ranks: int
    """Moving ranks of the host."""


def find_crowd(run: Run, host: Host) -> Crowd | None:
    """The crowd on a host; None if its moving ranks have no more busy threads than cores."""
    here = {r.rank: r.process for r in run.on(host.name) if r.process is not None and r.moving}
    if not here or not isinstance(host.machine, Machine):
        return None
    pushed = {rank: _preempted(process) for rank, process in here.items()}
    allowed = [p.runtime.cpus_allowed for p in here.values() if isinstance(p.runtime, Runtime)]
    cores = min([host.machine.cores, *(number for number in allowed if number is not None)])
    # Training needs one thread per rank; oversubscription comes from thread pools. If the run itself leaves half of the cores
    # idle, other programs preempt its threads.
    if sum(pushed.values()) <= cores or max(pushed.values()) < 2 or sum(map(cores_used, here.values())) < cores / 2:
        return None
    return Crowd({rank: number for rank, number in pushed.items() if number}, cores, len(here))


def _preempted(process: Process) -> int:
    """How many of its busy compute threads other threads preempt. The threads of a pool run no Python; other threads that the
    program started itself do, and no setting of a pool changes their number."""
    clocks = process.clocks
    if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
        return 0
    started = {thread.tid for thread in observed.python_threads(process)} - {process.pid}
    return sum(
        thread.cpu_ns / 1e9 / clocks.window_seconds >= _AT_WORK
        and thread.tid not in started
        and not is_of_library(thread.name)
        and (thread.involuntary_switches or 0) / clocks.window_seconds >= PUSHED
        for thread in clocks.threads
    )


# --- a slow link ----------------------------------------------------------------------------------------------------------


class SlowLink(NamedTuple):
    """The busiest connection of a run that mostly waits for it. Data that arrive late make a rank late too, so no rank sets the
    pace then."""

    rank: Rank
    connection: Connection
    busy_share: float
    """Share of the window in which data were in flight or waited to be sent."""
    bytes_per_second: float
    computing_share: float
    """Share of the time that the ranks computed at most."""


@once
def find_slow_link(run: Run) -> SlowLink | None:
    """None if the ranks compute, or no link is busy and slow."""
    computing = max((rank.training_share for rank in run.living if rank.training_share is not None), default=1.0)
    links = [(rank, c) for rank in run.living for c in rank.connections if _is_slow(c)]
    if computing > _COMPUTING or not links:
        return None
    rank, busiest = max(links, key=lambda link: link[1].busy_ms or 0)
    window = observed.window_of_connections(run.host[rank.host])
    if window < _LEAST_WINDOW:
        return None
    share = (busiest.busy_ms or 0) / 1000 / window
    if share < _BUSY:
        return None
    return SlowLink(rank, busiest, share, (busiest.bytes_moved or 0) / window, computing)


def _is_slow(c: Connection) -> bool:
    """Whether it transferred bytes over a network link, and slowly."""
    over_link = bool(c.bytes_moved) and not c.local_address.startswith(("127.", "::1"))
    return over_link and (c.delivery_rate_bytes or 0) < _FAST_BYTES
