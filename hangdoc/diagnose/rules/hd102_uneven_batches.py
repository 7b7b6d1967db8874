"""Same data, but an uneven split: the last batches exist on some ranks only.

## What it finds

A rank has left the loop over its batches, the others are inside it and wait for that rank in a collective; the ranks
read the same data, or their amounts differ only by a remainder, or the amounts could not be seen at all.

## Why it hangs

When the number of samples or row groups is no multiple of the number of ranks, some ranks have one batch more. Its
collective is never joined by those that have none left.

## Evidence

Stacks behind and inside the loop, loop counters, equal digests of the data directories, lengths that differ by a remainder.

## What to do

Drop the last partial round on all ranks (`drop_last=True` in the sampler, not only in the loader), pad it
(`DistributedSampler` does), agree on the minimum number of rounds before the loop, or use the `Join` context manager.

## When it would be wrong

Where the rank left the loop for another reason: an early stop or a step limit decided locally. The confidence is low
where the amounts could not be seen.

## References

- torch.utils.data.distributed.DistributedSampler: https://docs.pytorch.org/docs/stable/data.html
- torch.distributed.algorithms.join: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import exhausted, words
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding

CODE = "HD102"
NAME = "uneven-batches"
EXPLAINS = ("HD201", "HD202", "HD203")


def check(run: Run) -> Iterator[Finding]:
    """Ranks that left the loop before others over the same data."""
    for case in exhausted.cases(run):
        if case.story == "amount":
            continue
        short, waiting = case.short[0], case.waiting[0]
        done, _ = exhausted.counts(short, waiting)
        after = f" after {done} batches" if done is not None else ""
        known = case.story == "split"
        yield words.finding(
            CODE,
            NAME,
            severity="error",
            confidence=0.85 if known else 0.6,
            culprits=(r.rank for r in case.short),
            victims=(r.rank for r in run.waiting()),
            summary=f"{words.ranks(r.rank for r in case.short)} left the loop{after} and {words.doing(short)}, while "
            f"{words.ranks(r.rank for r in case.waiting)} "
            f"{words.verb([r.rank for r in case.waiting], 'has', 'have')} another batch and "
            f"{words.verb([r.rank for r in case.waiting], 'waits', 'wait')} in {words.operation(waiting)}"
            + ("" if known else "; how much data each has could not be seen"),
            evidence=[*case.evidence(), *words.standstill(run)],
            remedy="Make the number of batches equal on all ranks: drop or pad the last round (drop_last=True in the "
            "sampler), or agree on the minimum before the loop.",
            commands=words.look_again(short),
        )
