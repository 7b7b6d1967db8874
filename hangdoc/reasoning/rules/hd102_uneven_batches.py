"""The data is the same, but the split is uneven: some ranks have one batch more.

## What it finds

A rank has left the loop over its batches. The others are still inside and wait
for it in a collective. The ranks read the same data, but their numbers of
batches differ by a remainder.

## Why it hangs

If the number of samples is not a multiple of the number of ranks, some ranks
have one more batch. The other ranks never join the collective of that batch.

## Example

```python
mine = dataset[rank::world_size]  # <- 9 samples on 2 ranks: 5 and 4
for sample in mine:
    model(sample).sum().backward()
```

## Use instead

```python
sampler = DistributedSampler(dataset, drop_last=True)  # equal parts
for batch in DataLoader(dataset, sampler=sampler):
    model(batch).sum().backward()
```

`drop_last=True` in the DataLoader alone is not enough. For other loops, use the
`Join` context manager, or agree on the minimum number of batches before the
loop. In an evaluation, add up on each rank, and reduce the sums once behind the
loop: no sample is left out, and no rank waits inside.

## How hangdoc knows

One rank has left the loop and another is inside it. Their loop counters and
list lengths differ by a remainder, and the digests of their data directories
are equal. Before a rank has left the loop, the finding is information: the
loaders themselves say how many batches they have.

## When it can be wrong

The rank left the loop for another reason, such as a local early stop or step
limit.

## References

- torch.utils.data.distributed.DistributedSampler:
  https://docs.pytorch.org/docs/stable/data.html
- torch.distributed.algorithms.join:
  https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from collections.abc import Iterable, Iterator

from hangdoc.reasoning.causes.loops import CountedUneven, UnevenSplit
from hangdoc.reasoning.model.agreement import Agreement, compare_values
from hangdoc.reasoning.ranks.amounts import read_totals
from hangdoc.reasoning.ranks.counters import count_batches
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words

_REMEDY = (
    "Give all ranks the same number of batches: use drop_last=True in the sampler, pad the last batch, or agree on the minimum "
    "before the loop."
)
_OTHER_LENGTH = (
    "The numbers of batches differ by more than a DistributedSampler leaves. The ranks probably have data of different lengths, "
    "or other batch sizes. Split one data set with this sampler, or agree on the minimum number of batches before the loop."
)
_IN_EVALUATION = (
    " In an evaluation, which must not leave out data, add up on each rank and reduce once behind the loop."
)


@about(UnevenSplit)
def describe(run: Run, blockage: Blockage, cause: UnevenSplit) -> Draft:
    left, inside = cause.left, cause.left.inside
    wait = inside.first.wait
    lengths = (total for each in left.differences if each.unit == "batches" for total in (each.fewer, each.more))
    totals = read_totals(left.short.first, inside.first) or lengths
    calls_itself = wait is not None and wait.operation.origin == "user"  # and not the gradients' average
    return Draft(
        confidence=0.85,
        summary=f"{words.ranks(left.short.ranks)} left the loop{sentences.left_after(left)}; {words.have(inside.ranks)} "
        f"at least one more batch and {words.be(inside.ranks)} waiting in {words.operation(inside.first)}",
        evidence=sentences.loop_evidence(run, left),
        remedy=_choose_remedy(totals) + (_IN_EVALUATION if calls_itself else ""),
    )


@about(CountedUneven)
def _counted(run: Run, blockage: Blockage, cause: CountedUneven) -> Draft:
    return sentences.describe_counted(run, blockage, cause, _REMEDY if cause.more <= cause.done + 1 else _OTHER_LENGTH)


def _choose_remedy(totals: Iterable[int | None]) -> str:
    """By the numbers of batches in each pass. What a sampler splits differs by one batch at most."""
    lengths = [total for total in totals if total is not None]
    return _OTHER_LENGTH if max(lengths, default=0) > min(lengths, default=0) + 1 else _REMEDY


def check(run: Run) -> Iterator[Draft]:
    """One finding for loaders of different lengths, as long as no rank waits."""
    if run.blockages or run.unseen or run.backend is None:
        return
    counts = {rank.rank: count_batches(rank) for rank in run.living}
    if any(count.source != "loader" for count in counts.values()):
        return
    if len({count.loop and (count.loop.file, count.loop.line) for count in counts.values()}) != 1:
        return  # one rank trains, another validates
    totals = compare_values({number: count.total for number, count in counts.items()})
    if totals.differs and all(total is not None for total, _ in totals.values):
        yield _warn(totals)


def _warn(totals: Agreement[int | None, int]) -> Draft:
    shown = totals.values[:4]
    lengths = "; ".join(f"{total} on {words.ranks(ranks)}" for total, ranks in shown)
    return Draft(
        confidence=0.6,
        severity="info",
        summary=f"the loaders of the ranks have different numbers of batches: {lengths}; if the ranks make collective calls in "
        "each batch, they get out of step when one of them has none left, and then hang or fail, unless they end the epoch "
        "together",
        evidence=[
            Evidence(ranks[0], "progress", f"its loader has {total} batches in each pass{words.also(ranks)}")
            for total, ranks in shown
        ],
        remedy=_choose_remedy(total for total, _ in totals.values),
    )
