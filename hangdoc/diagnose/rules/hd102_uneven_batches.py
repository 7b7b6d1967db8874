"""Same data, but an uneven split: the last batches exist on some ranks only.

## What it finds

A rank has left the loop over its batches, the others are inside it and wait for that rank in a collective; and the ranks
visibly have amounts of the same data that differ by a remainder.

## Why it hangs

When the number of samples or row groups is no multiple of the number of ranks, some ranks have one batch more. Its
collective is never joined by those that have none left.

## Evidence

Stacks after and inside the loop, loop counters, lengths that differ by a remainder, equal digests of the data directories.

## What to do

Drop the last partial round on all ranks (`drop_last=True` in the sampler, not only in the loader), pad it
(`DistributedSampler` does), agree on the minimum number of rounds before the loop, or use the `Join` context manager.

## When it would be wrong

Where the rank left the loop for another reason: an early stop or a step limit decided locally.

## References

- torch.utils.data.distributed.DistributedSampler: https://docs.pytorch.org/docs/stable/data.html
- torch.distributed.algorithms.join: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes.data import UnevenSplit, counts
from hangdoc.diagnose.kinds import LeftLoop
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import left_loop
from hangdoc.diagnosis import Finding

CODE = "HD102"
NAME = "uneven-batches"
ABOUT = (UnevenSplit,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that left the loop before others because they had fewer batches of the same data."""
    kind, cause = blockage.kind, blockage.cause
    assert isinstance(kind, LeftLoop) and isinstance(cause, UnevenSplit)  # noqa: S101  (see ABOUT)
    short, waiting = kind.short.first, kind.inside.first
    done, _ = counts(short, waiting)
    after = left_loop.count(kind, done, "batches") if done is not None else ""
    after = f" ({after})" if after and len(kind.short.ranks) > 1 else f" {after}".rstrip()
    inside = kind.inside.ranks
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.85,
        summary=f"{words.ranks(kind.short.ranks)} left the loop{after}; {words.ranks(inside)} "
        f"{words.verb(inside, 'has', 'have')} at least one more batch and {words.be(inside)} waiting in "
        f"{words.operation(waiting)}",
        evidence=[*left_loop.evidence(kind, cause.differences), *words.standstill(run)],
        remedy="Give all ranks the same number of batches: use drop_last=True in the sampler, pad the last batch, or agree "
        "on the minimum before the loop.",
        commands=words.look_again(short),
    )
