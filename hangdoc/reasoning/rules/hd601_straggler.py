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

For each rank, it measures how long the training thread was on a core and how
many iterations it completed. It compares threads, cores and throttling, and the
duration of the stages of a step if the trainer publishes them.

## When it can be wrong

An observation that is shorter than a step shows only one phase of it, so the
finding needs several iterations. Ranks of a pipeline wait by design.

## References

- DistributedDataParallel, uneven workloads:
  https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning import next_steps, words
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks import known
from hangdoc.reasoning.rules.draft import Draft
from hangdoc.snapshot import Clocks, Process, Progress, Runtime, Stack

_BUSY, _WAITING = 0.75, 0.45
_ROUNDS = 3
_STAGES = ("data", "forward", "backward", "optimizer")


def check(run: Run) -> Iterator[Draft]:
    """One finding for a minority of ranks that the others wait for in every iteration."""
    if run.unseen or run.backend != "gloo" or not all(_rounds(rank) >= _ROUNDS for rank in run.living):
        return  # an NCCL rank spins while it waits, so its CPU time shows nothing
    busy = [rank for rank in run.living if (rank.training_share or 0.0) >= _BUSY]
    rest = [rank for rank in run.living if (rank.training_share or 0.0) < _BUSY]
    if busy and len(busy) <= len(rest) and all((rank.training_share or 1.0) <= _WAITING for rank in rest):
        yield _draft(busy, rest)


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


def _draft(busy: list[Rank], rest: list[Rank]) -> Draft:
    slow, others = [rank.rank for rank in busy], [rank.rank for rank in rest]
    why = "; ".join(filter(None, (_resources(busy[0], rest[0]), _stage(busy[0], rest[0]))))
    return Draft(
        confidence=0.75,
        culprits=slow,
        victims=others,
        summary=f"{words.are(slow)} slower than the others: {words.verb(slow, 'it computes', 'they compute')} "
        f"{busy[0].training_share or 0:.0%} of the time, while {words.ranks(others)} mostly "
        f"{words.verb(others, 'waits', 'wait')}"
        + (f" ({why})" if why else "; no other difference was found, so it may have more work"),
        evidence=[
            Evidence(
                rank.rank,
                "cpu",
                f"training thread on a core {rank.training_share or 0:.0%} of the time, {_rounds(rank)} iterations done",
            )
            for rank in (*busy[:4], *rest[:4])
        ],
        remedy="Balance the work between the ranks, or fix what slows the culprit down.",
        commands=next_steps.look_again(busy[0]),
    )


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
    beacon = known.beacon(rank.process)
    published = beacon.stages if beacon is not None else ()
    return dict(zip(_STAGES, published, strict=True)) if len(published) == len(_STAGES) else {}


def _resources(slow: Rank, other: Rank) -> str:
    """Which setting gives the slow rank less of its CPU."""
    mine, theirs = (known.environment(rank.process).get("OMP_NUM_THREADS") for rank in (slow, other))
    if mine != theirs:
        return (
            f"OMP_NUM_THREADS is {mine or 'not set'} on rank {slow.rank} and {theirs or 'not set'} on rank {other.rank}"
        )
    few, many = _cores(slow.process), _cores(other.process)
    return f"rank {slow.rank} may use {few} cores, rank {other.rank} {many}" if few and many and few < many else ""


def _cores(process: Process | None) -> int | None:
    runtime = process.runtime if process is not None else None
    return runtime.cpus_allowed if isinstance(runtime, Runtime) else None
