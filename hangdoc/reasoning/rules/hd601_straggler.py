"""One rank is slower than the others in every iteration; all wait for it.

## What it finds

A run that makes progress, in which one rank computes nearly all the time and
the others mostly wait for it, over several iterations.

## Why it hangs

It does not hang. Every step takes as long as its slowest rank. If one rank runs
at half the speed, so does the whole run.

## Example

```python
documents = sorted(corpus, key=len)
first = rank * share
mine = documents[first : first + share]  # <- the last rank gets the longest
```

## Use instead

```python
documents = sorted(corpus, key=len)
mine = documents[rank::world_size]  # every rank gets short and long ones
```

Give the rank the same number of threads and cores as the others, and look for
other programs on its host.

## How hangdoc knows

By torch's record of each rank's calls: how late a rank makes its calls, in which
share of them it is the last, and how long the others wait for it, over two
seconds of calls at least. Without a record it is inferred: from how long the
training thread was on a core, and from how many iterations it completed. It
compares threads and cores, what slows the cards down (heat, the supply of
power), and the duration of the stages of a step if the trainer publishes them.

## When it can be wrong

Ranks of a pipeline wait by design. A rank that polls, and whose sleep is as long
as it is late, waits for work itself: that is no straggler. A slow network link makes the rank behind it
late; if one is busy most of the time, no rank is blamed. If the hosts' clocks can't be compared, only
the ranks of one host are. On a crowded host the scheduler may make a
rank late for some seconds: if it waited for a core, the finding names that, with a
lower score. Where the others wait for something of their own for as long as for the
late rank, and a loader may be what they wait for, it may be no slower than they are, and the score is lower too. If
a loader without workers was only seen at other times, that is missed. Without a record, an observation that is shorter than
a step shows only one phase of it, so the finding needs several iterations.

A rank that takes requests from outside, and hands them out by a broadcast or scatter, may be
idle between them. It is a straggler only if, at the look, a client has waited for an
answer for longer than the rank is late. A connection that needs no answer looks the same.
If its stack was not read, and no client is connected at the look, hangdoc does not know that a rank
is a server.

## References

- DistributedDataParallel, uneven workloads:
  https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from hangdoc.phrases import apart_from_waits, compared_calls, duration, milliseconds
from hangdoc.reasoning.causes import pace
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.ledger.lags import Lag, Pace
from hangdoc.reasoning.model.holds import Asleep
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks.iterators import may_wait_for_loader
from hangdoc.reasoning.ranks.sleeps import LONG_SLEEP, find_long_sleep, find_sleeping_line
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import call_words, next_steps, words
from hangdoc.snapshot import Clocks, Holder, Progress, Stack

_BUSY, _WAITING = 0.75, 0.45
_ROUNDS = 3
_AT_WORK = ("computing", "loading-data")
_WORKING_PERCENT = 50
"""CPU of a rank that the others wait for, if it computes for most of that time."""
_SHARE_OF_LATENESS = 0.25
"""Who computes for less than this of the time that the others wait for it is not late because it computes."""
_BALANCE = "Balance the work between the ranks, or fix what slows the late one down."
_FIND_ITS_WAIT = "Find out what the late one waits for{how}: its data, a disk, a server, a device."
_LOADERS = (
    " If all ranks wait for their loaders, make these faster: one rank is late then although all are equally slow."
)
_READ_STACKS = ", with diagnose --stacks"
_MEASURE_REQUESTS = (
    "Measure the requests to {peer}: how long each takes, and how many a step needs. If they are fast and few, the late one "
    "waits for something else: look again."
)
_LOOK_AT_SLEEP = "Look at the line that sleeps. If it limits a rate or tries again, find out why on this rank only."
_GIVE_IT_A_CORE = (
    "Find out what else runs on its host, and which cores it may use. If it has a core and is late all the same, it has more "
    "work: look again."
)
_LEAST_DELAY = 0.25
"""Who waits for a core for less of the time has one."""
_MOST_OF_LAG = 0.9


def check(run: Run) -> Iterator[Draft]:
    """One finding for a minority of ranks that the others wait for in every iteration."""
    if paces := pace.paces_of(run):
        # Who sleeps as long as it is late has no work yet, and looks for some between two calls.
        groups = [
            (measured, late)
            for measured in paces
            if (late := pace.stragglers(run, measured)) is not None
            and not all(_sleeps_as_long(run.ranks[lag.rank], lag) for lag in late.slow)
        ]
        if groups:
            yield _compare_lags(run, groups)
        return
    if run.unseen or run.backend != "gloo" or not all(_rounds(rank) >= _ROUNDS for rank in run.living):
        return  # an NCCL rank spins while it waits, so its CPU time shows nothing
    busy = [rank for rank in run.living if (rank.training_share or 0.0) >= _BUSY]
    rest = [rank for rank in run.living if (rank.training_share or 0.0) < _BUSY]
    if busy and len(busy) <= len(rest) and all((rank.training_share or 1.0) <= _WAITING for rank in rest):
        numbers = [rank.rank for rank in rest]
        how = (
            f"{words.verb([rank.rank for rank in busy], 'it computes', 'they compute')} {busy[0].training_share or 0:.0%} of the "
            f"time, while {words.ranks(numbers)} mostly {words.verb(numbers, 'waits', 'wait')}"
        )
        yield _draft(run, busy, rest, how, _inferred(busy, rest), 0.75)


def _compare_lags(run: Run, groups: Sequence[tuple[Pace, pace.Stragglers]]) -> Draft:
    """The ranks that are late in groups beside each other."""
    slow = sorted((lag for _, late in groups for lag in late.slow), key=lambda lag: -lag.median_seconds)
    rest = [run.ranks[lag.rank] for _, late in groups for lag in late.others]
    by_record = [line for measured, late in groups for line in _by_record(measured, late.slow + late.others)]
    up_to = "up to " if slow[-1].median_seconds < pace.AS_LATE * slow[0].median_seconds else ""
    late_by = f"{up_to}{milliseconds(slow[0].median_seconds)}"
    late, of_few = [lag.rank for lag in slow], [measured for measured, _ in groups if measured.of_few]
    if not of_few:
        how = f"{words.verb(late, 'it makes its', 'they make their')} calls {late_by} later"
    elif len(groups) == 1:
        calls = compared_calls(of_few[0].telling_calls, of_few[0].calls, of_few[0].names)
        how = f"{words.verb(late, 'it makes', 'they make')} {calls} {late_by} later"
    else:
        how = f"{words.verb(late, 'it makes', 'they make')} some calls {late_by} later"
    ranks = [run.ranks[lag.rank] for lag in slow]
    waited = min((lag.waited_share for _, late in groups for lag in late.others), default=0.0)
    found = _draft(run, ranks, rest, how, [*by_record, _place(ranks[0])], 0.9, waited)
    own = _find_own_waits(run, [lag for _, late in groups for lag in late.others], slow[-1].median_seconds)
    alike = own is not None and own >= waited and _waits_unexplained(run, ranks[0], rest[0])
    if alike and any(rank.state == "loading-data" or may_wait_for_loader(rank.process) for rank in (*ranks, *rest)):
        slowest, others = [rank.rank for rank in ranks], [rank.rank for rank in rest]
        summary = (
            f"{words.are(slowest)} behind the others, but may be no slower: {how}; {words.ranks(others)} too "
            f"{words.verb(others, 'waits', 'wait')} for something else, {own:.0%} of the time, as ranks with slow loaders do"
        )
        found = replace(found, summary=summary, confidence=0.6, remedy=f"{found.remedy}{_LOADERS}")
    share = pace.find_lack_of_core(ranks, rest, [lag for _, late in groups for lag in late.others])
    if share is not None:
        numbers = [lag.rank for lag in slow]
        lack = f"{words.verb(numbers, 'it was', 'each of them was')} ready to run and waited for a core {share:.0%} of the time"
        summary = f"{words.are(numbers)} slower than the others: {how}; {lack}"
        return replace(found, summary=summary, remedy=_GIVE_IT_A_CORE, confidence=0.6)
    return found


def _find_own_waits(run: Run, others: Iterable[Lag], late_seconds: float) -> float | None:
    """The least share of the time in which one of the others neither waits for a later rank nor computes or is ready to: it waits
    for something of its own. Times between two calls count if a rank is late by no more than them: in shorter ones it may wait
    for the transfers of the first call. None if that is unknown, as where a card may compute."""
    shares = []
    for lag in others:
        rank = run.ranks[lag.rank]
        if rank.cpu_percent is None or rank.process is None or observed.uses_nccl(rank.process):
            return None
        wanted = rank.cpu_percent / 100 + (pace.share_waiting_for_core(rank) or 0.0)
        waits = pace.share_of_gaps(run, lag.rank, late_seconds)
        shares.append(min(1 - lag.waited_share - wanted, (1 - lag.waited_share) * waits))
    return min(shares, default=None)


def _sleeps_as_long(rank: Rank, lag: Lag) -> bool:
    """Whether the sleep of a rank that polls is the time by which it is late, and longer than a pause between two steps."""
    hold = rank.hold
    if not isinstance(hold, Asleep) or not hold.polls or hold.period is None:
        return False
    return hold.period >= max(LONG_SLEEP, _MOST_OF_LAG * lag.median_seconds)


def _rounds(rank: Rank) -> int:
    """How many iterations the loop of the rank completed during the observation, by its counters. Counters are read with the two
    stacks, which may be further apart than the observation is long, where hangdoc polls."""
    process = rank.process
    if process is None or not isinstance(process.progress, Progress) or not isinstance(process.clocks, Clocks):
        return 0
    counted = max((c.after - c.before for c in process.progress.counters if c.looped), default=0)
    before, after = process.stack_before, process.stack
    apart = after.at_seconds - before.at_seconds if isinstance(before, Stack) and isinstance(after, Stack) else 0.0
    window = process.clocks.window_seconds
    return int(counted * min(1.0, window / apart)) if apart > 2 * window else counted


def _draft(
    run: Run,
    busy: list[Rank],
    rest: list[Rank],
    how: str,
    evidence: list[Evidence],
    confidence: float,
    waited_share: float = 0.0,
) -> Draft:
    """`waited_share`: of the time, how much each of the others waits for a later rank at least; 0 if unknown."""
    slow = [rank.rank for rank in busy]
    sleep = _describe_sleep(busy[0])
    why = pace.describe_slowness(run, busy[0], rest[0]) or sleep
    if why is not None:
        remedy = _LOOK_AT_SLEEP if why == sleep else _BALANCE
    elif _wants_core(busy[0]):
        remedy = _GIVE_IT_A_CORE
    else:
        remedy = _find_its_wait(busy[0]) if _waits_unexplained(run, busy[0], rest[0]) else _BALANCE
    return Draft(
        confidence=confidence,
        culprits=slow,
        victims=[rank.rank for rank in rest],
        summary=f"{words.are(slow)} slower than the others: {how}"
        + (f" ({why})" if why else _describe_work(busy, waited_share)),
        evidence=evidence,
        remedy=remedy,
        commands=(*next_steps.look_again(busy[0]), *next_steps.show(holder.pid for holder in _list_asked(busy[0]))),
    )


def _list_asked(slow: Rank) -> tuple[Holder, ...]:
    """The processes to which a late rank was in a request at the look."""
    return (slow.asks.holders or ()) if slow.asks is not None else ()


def _find_its_wait(slow: Rank) -> str:
    """What to do about a late rank that waits. Its stack is asked for only if it was not read."""
    if _describe_pause(slow):
        return _LOOK_AT_SLEEP
    if slow.asks is not None:
        return _MEASURE_REQUESTS.format(peer=slow.asks.other_end)
    return _FIND_ITS_WAIT.format(how=_READ_STACKS if slow.thread is None else "")


def _waits_unexplained(run: Run, slow: Rank, other: Rank) -> bool:
    """Whether a late rank neither computes nor lacks a core, and nothing shows why it is late: then it waits for something."""
    explained = pace.describe_slowness(run, slow, other) or _describe_sleep(slow)
    return not explained and not _wants_core(slow) and _hardly_computes(slow)


def _describe_sleep(rank: Rank) -> str | None:
    """`at the look, rank 1 was in a sleep of 2.0 s at train.py:7`; None for a rank that was in none, or in a pause."""
    seconds = (
        find_long_sleep(rank.process, rank.thread) if rank.process is not None and rank.thread is not None else None
    )
    if seconds is None or rank.where is None:
        return None
    place = f"{rank.where.file}:{rank.where.line}"
    return f"at the look, rank {rank.rank} was in a sleep of {duration(seconds)} at {place}"


def _describe_pause(rank: Rank) -> str:
    """`; when its stack was read, rank 1 was in the sleep at train.py:7`, of any length. Empty if it was in none. The other ranks
    may sleep too, so it explains nothing."""
    frame = find_sleeping_line(rank.thread) if rank.thread is not None else None
    if frame is None:
        return ""
    return f"; when its stack was read, rank {rank.rank} was in the sleep at {short(frame.file)}:{frame.line}"


def _place(rank: Rank) -> Evidence:
    if _describe_sleep(rank) is not None:
        return Evidence(rank.rank, "stacks", f"asleep {words.place(rank)}")
    return words.stack_evidence(rank)


def _describe_work(slow: Sequence[Rank], waited_share: float) -> str:
    """What slow ranks were doing; that nothing shows why they are slow, if they computed. With little of a core, they may wait:
    for data, for a device, in sends and receives, which torch's record of Gloo does not have. They do if the others wait for them
    much longer than they compute."""
    first, who = slow[0], [rank.rank for rank in slow]
    if first.label == "computing" and first.state != "computing":
        return f"; at the look {words.are([first.rank])} {words.doing(first)}"
    they = words.verb(who, "it", "they")
    if first.cpu_percent is None or not _hardly_computes(first):
        return f"; no other difference was found, so {they} may have more work"
    used = f"rank {first.rank} uses {first.cpu_percent:.0f}% of a core"
    if _wants_core(first):
        waited = f"was ready to run and waited for one {pace.share_waiting_for_core(first):.0%} of the time"
        return f"; no other difference was found: {used}, and {waited}, so {they} may lack a core, or have more work"
    waits = f"{they} {words.verb(who, 'waits', 'wait')} for something"
    at_look = (
        f"; at the look rank {first.rank} was in a request to {first.asks.other_end}"
        if first.asks is not None
        else _describe_pause(first)
    )
    if first.cpu_percent / 100 >= waited_share * _SHARE_OF_LATENESS:
        waits = f"{they} may have more work, or wait for something"
    return f"; no other difference was found: {used}, so {waits}{at_look}"


def _hardly_computes(rank: Rank) -> bool:
    """Whether a rank of which nothing else is known uses little of a core: it may wait for something."""
    return rank.cpu_percent is not None and rank.cpu_percent < _WORKING_PERCENT and rank.state in _AT_WORK


def _wants_core(rank: Rank) -> bool:
    """Whether a rank that uses little of a core worked, or was ready to, for most of the time: it waits for a core."""
    share = pace.share_waiting_for_core(rank) or 0.0
    wanted = (rank.cpu_percent or 0.0) + 100 * share
    return _hardly_computes(rank) and share >= _LEAST_DELAY and wanted >= _WORKING_PERCENT


def _by_record(measured: Pace, lags: Iterable[Lag]) -> list[Evidence]:
    text = "last in {:.0%} of {}, {}, waited for a later rank {:.0%} of the time{}"
    calls = compared_calls(measured.telling_calls, measured.calls, measured.names)
    lines = [
        Evidence(
            lag.rank,
            call_words.PROBE,
            text.format(
                lag.last_share,
                calls,
                call_words.lateness(lag),
                lag.waited_share,
                apart_from_waits(*lag.long_waits),
            ),
        )
        for lag in lags
    ]
    return [*lines[:8], *call_words.clocks(measured)]


def _inferred(busy: list[Rank], rest: list[Rank]) -> list[Evidence]:
    text = "training thread on a core {:.0%} of the time, {} iterations done (inferred: no record of calls)"
    return [
        Evidence(rank.rank, "cpu", text.format(rank.training_share or 0, _rounds(rank)))
        for rank in (*busy[:4], *rest[:4])
    ]
