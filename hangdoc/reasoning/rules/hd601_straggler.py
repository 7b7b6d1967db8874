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
the ranks of one host are. Without a record, an observation that is shorter than
a step shows only one phase of it, so the finding needs several iterations.

## References

- DistributedDataParallel, uneven workloads:
  https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from collections.abc import Iterable, Iterator

from hangdoc.phrases import milliseconds
from hangdoc.reasoning.causes import pace
from hangdoc.reasoning.ledger.lags import Lag, Pace
from hangdoc.reasoning.model.holds import Asleep
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import call_words, next_steps, words
from hangdoc.snapshot import Clocks, Progress, Stack

_BUSY, _WAITING = 0.75, 0.45
_ROUNDS = 3
_LEAST_SLEEP, _MOST_OF_LAG = 1.0, 0.9


def check(run: Run) -> Iterator[Draft]:
    """One finding for a minority of ranks that the others wait for in every iteration."""
    if (measured := pace.pace_of(run)) is not None:
        if (stragglers := pace.stragglers(run, measured)) is not None:
            slow, rest = ([run.ranks[lag.rank] for lag in lags] for lags in stragglers)
            if all(_sleeps_as_long(rank, lag) for rank, lag in zip(slow, stragglers.slow, strict=True)):
                return  # it has no work yet, and looks for some between two calls
            late = milliseconds(stragglers.slow[0].median_seconds)
            how = f"{words.verb([lag.rank for lag in stragglers.slow], 'it makes its', 'they make their')} calls {late} later"
            evidence = [*_by_record(measured, stragglers.slow + stragglers.others), words.stack_evidence(slow[0])]
            yield _draft(run, slow, rest, how, evidence, 0.9)
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


def _sleeps_as_long(rank: Rank, lag: Lag) -> bool:
    """Whether the sleep of a rank that polls is the time by which it is late, and longer than a pause between two steps."""
    hold = rank.hold
    if not isinstance(hold, Asleep) or not hold.polls or hold.period is None:
        return False
    return hold.period >= max(_LEAST_SLEEP, _MOST_OF_LAG * lag.median_seconds)


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
    run: Run, busy: list[Rank], rest: list[Rank], how: str, evidence: list[Evidence], confidence: float
) -> Draft:
    slow = [rank.rank for rank in busy]
    why = pace.describe_slowness(run, busy[0], rest[0])
    return Draft(
        confidence=confidence,
        culprits=slow,
        victims=[rank.rank for rank in rest],
        summary=f"{words.are(slow)} slower than the others: {how}" + (f" ({why})" if why else _describe_work(busy[0])),
        evidence=evidence,
        remedy="Balance the work between the ranks, or fix what slows the late one down.",
        commands=next_steps.look_again(busy[0]),
    )


def _describe_work(slow: Rank) -> str:
    """What a slow rank was doing; that nothing shows why it is slow, if it computed."""
    if slow.label == "computing" and slow.state != "computing":
        return f"; at the look it was {words.doing(slow)}"
    return "; no other difference was found, so it may have more work"


def _by_record(measured: Pace, lags: Iterable[Lag]) -> list[Evidence]:
    text = "last in {:.0%} of {} calls, {}, waited for a later rank {:.0%} of the time"
    lines = [
        Evidence(
            lag.rank,
            call_words.PROBE,
            text.format(lag.last_share, measured.telling_calls, call_words.lateness(lag), lag.waited_share),
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
