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

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import numbers
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import GroupOrder
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.rules import parties

CODE = "HD205"
NAME = "group-order-deadlock"
ABOUT = (GroupOrder,)


def say(run: Run, blockage: Blockage) -> Finding:
    """A cycle of ranks over several groups."""
    kind = blockage.kind
    assert isinstance(kind, GroupOrder)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9,
        summary=f"ranks entered the collectives of their groups in conflicting order: {parties.calls(kind.parts)}",
        evidence=[*(_membership(part.first) for part in kind.parts[:4]), *parties.evidence(run, kind.parts)],
        remedy="Make all ranks call the collectives of their groups in the same fixed order.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )


def _membership(rank: Rank) -> Evidence:
    members = rank.wait.members if rank.wait is not None else None
    who = f"ranks {numbers(members)}" if members else "all ranks"
    name = rank.wait.operation.group if rank.wait is not None else None
    return Evidence(rank=rank.rank, probe="interpreter", text=f"group {name or 'default'} contains {who}")
