"""Only some ranks of a group call a collective, for example under `if rank == 0:`.

## What it finds

Some ranks wait in a collective that the others did not call. The others are
already past it and wait in a later operation.

## Why it hangs

A collective completes when every rank of its group has called it. A call under
a condition on the rank, a `continue` on one rank, or a loop that one rank
leaves early makes some ranks skip it. The others wait in it forever. DDP skips
the all-reduce of its backward on a rank where a parameter got no gradient.

## Example

```python
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()  # the other ranks wait here
    if dist.get_rank() == 0:
        save(model)
        dist.barrier()  # <- only rank 0 calls it
```

## Use instead

```python
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()
    if dist.get_rank() == 0:
        save(model)
    dist.barrier()  # every rank calls it
```

If only some ranks should take part, create a group of them and pass it as
`group=`. If a local value decides (a loss, a signal, a clock), all_reduce the
decision first.

## How hangdoc knows

torch's record of each rank's calls shows that the ranks made different calls of
one number. The fewer ranks are odd; of two sides of one size, the one whose call
is not what followed the same calls before. The source around the two lines then
shows a condition, or that one line comes after the other. A condition that holds on
both sides (`if args.distributed:`) is no reason. If the evidence names a condition,
its variables differ, or it reports that they could not be read. Without a
record (Gloo before torch 2.11), only a condition on the rank (`if rank == 0:`)
is enough for this finding; otherwise it is HD201.

## When it can be wrong

In a first round, nothing was made before, so that two sides of one size stay
equal: then the finding is HD201 and names all ranks. A rank that left a loop
early (HD101, HD102, HD105) may look like one that skipped a call.

## References

- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Sequence

from hangdoc.reasoning.model.kinds import Subset
from hangdoc.reasoning.model.rank import Class, ranks_of
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about
from hangdoc.reasoning.text import words

_CALL_ON_ALL = (
    "Make the call on every rank of the group, or pass a group that contains only the ranks that call it. If a local value "
    "decides, all_reduce the decision first."
)
_SET_ON_ALL = (
    "Find out what sets `{}` on {} only: a callback, a signal handler, a setting. Set it on all ranks: all_reduce the decision "
    "first."
)
_GRADIENTS = (
    "Find out why DDP averaged no gradients on {}. If its backward was skipped, or ran under no_sync(), let all ranks decide on "
    "that together: all_reduce the flag first. If a parameter got no gradient, use it in the loss of every rank, or set "
    "find_unused_parameters=True."
)


@about(Subset)
def describe(run: Run, blockage: Blockage, kind: Subset) -> Draft:
    makers = tuple(part for part in kind.parts if part not in kind.others)
    asked = kind.asked is not None
    return Draft(
        # An inferred operation is weak evidence; the ranks' positions in the program are strong evidence.
        confidence=0.9 if kind.sure else 0.6,
        summary="; ".join([kind.reason, *(words.waiting_in([part]) for part in kind.others)]),
        evidence=sentences.call_evidence(run, kind.parts, deciding=() if asked else ranks_of(makers)),
        remedy=_SET_ON_ALL.format(kind.asked, words.ranks(blockage.culprits))
        if asked
        else _usual_remedy(blockage, makers),
    )


def _usual_remedy(blockage: Blockage, makers: Sequence[Class]) -> str:
    """For a call that some ranks made and others left out, if its condition is not known."""
    backward = any(
        part.first.wait is not None and part.first.wait.operation.origin == "ddp-backward" for part in makers
    )
    skipped = not set(ranks_of(makers)) & set(blockage.culprits)
    return _GRADIENTS.format(words.ranks(blockage.culprits)) if backward and skipped else _CALL_ON_ALL
