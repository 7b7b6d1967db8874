"""Ranks call the collectives of several groups in conflicting order.

## What it finds

A cycle of ranks that wait in collectives of different groups. Each one waits
for a rank that is in the collective of another of these groups. No rank is
behind another in the program.

## Why it hangs

A rank cannot enter the collective of one group while it waits in that of
another. If two ranks share two groups and start with different ones, they wait
for each other. Over the rows and columns of a mesh, the cycle may be longer.

## Example

```python
groups = [tensor_parallel, data_parallel]
if dist.get_rank() % 2:
    groups.reverse()  # <- odd ranks start with the other group
for group in groups:
    dist.all_reduce(gradient, group=group)
```

## Use instead

```python
for group in (tensor_parallel, data_parallel):  # on every rank
    dist.all_reduce(gradient, group=group)
```

Do not take the order from a set, from the order of completion, or from a branch
on the rank.

## How hangdoc knows

It reads the group that each rank waits in, and the members of that group, from
the interpreter of each rank.

## When it can be wrong

All ranks use the same order, but a rank skipped one of the calls (HD203).
Asynchronous collectives of different groups may overlap without a deadlock;
hangdoc looks only at ranks that wait.

## References

- torch.distributed, groups:
  https://docs.pytorch.org/docs/stable/distributed.html
- NCCL, using multiple communicators concurrently:
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
"""

from hangdoc.phrases import numbers
from hangdoc.reasoning.model.kinds import GroupOrder
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about


@about(GroupOrder)
def describe(run: Run, blockage: Blockage, kind: GroupOrder) -> Draft:
    return Draft(
        confidence=0.9,
        summary=f"ranks entered the collectives of their groups in conflicting order: {sentences.name_calls(kind.parts[::-1])}"
        + (f" ({kind.reason})" if kind.reason else ""),
        evidence=[
            *(_membership(part.first) for part in kind.parts[:4]),
            *sentences.call_evidence(run, kind.parts, deciding=()),
        ],
        remedy="Make all ranks call the collectives of their groups in the same fixed order.",
    )


def _membership(rank: Rank) -> Evidence:
    group, members = rank.wait.of_group if rank.wait is not None else (None, None)
    who = f"ranks {numbers(members)}" if members else "all ranks"
    return Evidence(rank.rank, "interpreter", f"group {group or 'default'} contains {who}")
