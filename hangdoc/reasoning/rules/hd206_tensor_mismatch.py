"""Ranks call the same collective with tensors of different sizes or dtypes.

## What it finds

All ranks wait in one collective, but the tensors that they passed to it differ
in their number of elements or dtype.

## Why it hangs

A collective requires the same number of elements and the same dtype on all
ranks. Otherwise one rank waits for bytes that the others never send. On a
backend that checks this, the rank with the smaller buffer raises an error, and
the others may wait for it.

## Example

```python
losses = torch.stack(local_losses)  # <- their number differs by rank
dist.all_reduce(losses)
```

## Use instead

```python
losses = torch.stack(local_losses)
total = torch.tensor([losses.sum(), float(len(losses))])  # always 2
dist.all_reduce(total)
mean = total[0] / total[1]
```

For data of different sizes, pad the tensors, exchange the sizes first, or use
`all_gather_object`. Use the same precision on all ranks.

## How hangdoc knows

It reads the dtype and shape of the tensor in each rank's call from the memory
of the process. If no Python frame holds the tensor, as in a backward pass, it
uses torch's flight recorder.

## When it can be wrong

`all_gather` over uneven tensors and `all_to_all` accept different sizes;
hangdoc does not compare these.

## References

- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
- TORCH_DISTRIBUTED_DEBUG: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.reasoning.model.kinds import Tensors
from hangdoc.reasoning.model.ledger import describe_amount
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words


@about(Tensors)
def describe_tensors(run: Run, blockage: Blockage, kind: Tensors) -> Draft:
    shown = [(kind.shown[ranks[0]], ranks) for _, ranks in kind.values.values[:4]]
    operation = kind.op or words.operation(run.ranks[shown[0][1][0]])
    earlier = f" number {kind.earlier}, which NCCL does not check" if kind.earlier is not None else ""
    passed = (
        Evidence(ranks[0], "interpreter", f"passed {tensor} to {operation}{words.also(ranks)}")
        for tensor, ranks in (shown if kind.op is None else ())  # else the lines about the record show it
    )
    return Draft(
        confidence=0.93,
        summary=f"ranks passed different tensors to {operation}{earlier}: "
        + "; ".join(f"{tensor} on {words.ranks(ranks)}" for tensor, ranks in shown),
        evidence=[*passed, *words.stacks(run, run.waiting)],
        remedy=_remedy(kind),
    )


def _remedy(kind: Tensors) -> str:
    dtypes, sizes = (len(set(part)) > 1 for part in zip(*map(_split, kind.shown.values()), strict=True))
    same = " and ".join(what for what, differs in (("dtype", dtypes), ("number of elements", sizes)) if differs)
    how = ": pad them, or exchange the sizes first" if sizes else ", for example with tensor.to(dtype)"
    return f"Pass tensors with the same {same or 'dtype and number of elements'} on all ranks{how}."


def _split(tensor: str) -> tuple[str, str]:
    """The dtype of a tensor, and its number of elements."""
    dtype, _, elements = describe_amount(tensor).partition(" x ")
    return dtype, elements
