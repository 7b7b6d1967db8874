"""Ranks call the collectives of several groups in conflicting order.

## What it finds

A cycle of ranks that wait in collectives of different groups. Each one waits
for a rank that is in the collective of another of these groups. No rank is
behind another in the program.

## Why it hangs

A rank cannot enter the collective of one group while it waits in that of
another. If two ranks share two groups and start with different ones, they wait
for each other. Over the rows and columns of a mesh, the cycle may be longer.
`new_group` is a collective of all ranks. If only its members call it, some
ranks make one group while others make another.

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
If a rank is a round ahead of the others in the program without their call, and its
record shows that it departs from its earlier calls, it left this call out (HD203).

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

from collections.abc import Sequence

from hangdoc.phrases import numbers
from hangdoc.reasoning.model.kinds import GroupOrder
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.ranks import conditions
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, WithRemedy, about
from hangdoc.reasoning.text import words

_SHOWN = 4
_CONFLICT = "ranks entered the collectives of their groups in conflicting order"
_SAME_ORDER = "Make all ranks call the collectives of their groups in the same fixed order."


@about(GroupOrder)
def describe(run: Run, blockage: Blockage, kind: GroupOrder) -> Draft:
    lines = _describe_new_groups(run, kind.parts[:_SHOWN])
    what = "ranks make different groups at the same time" if lines else _CONFLICT
    lines = lines or [line for part in kind.parts[:_SHOWN] if (line := _describe_members(part.first)) is not None]
    return Draft(
        confidence=0.9,
        summary=f"{what}: {sentences.name_calls(kind.parts[::-1])}" + (f" ({kind.reason})" if kind.reason else ""),
        evidence=[*lines, *sentences.call_evidence(run, kind.parts, deciding=())],
        remedy=_SAME_ORDER,
    )


def _describe_members(rank: Rank) -> Evidence | None:
    """The members of the group in which a rank waits; None if they are not known."""
    if rank.wait is None:
        return None
    group, members = rank.wait.of_group
    if members is None and group is not None:
        return None
    name = rank.wait.operation.group_label or group or "default"
    who = f"ranks {numbers(members)}" if members else "all ranks"
    return Evidence(rank.rank, "interpreter", f"group {name} contains {who}")


def _describe_new_groups(run: Run, parts: Sequence[Class]) -> list[Evidence]:
    """Which ranks must still make the groups that others are making; empty unless all are making one."""
    made = [wait.makes for part in parts if (wait := part.first.wait) is not None and wait.makes is not None]
    if len(made) < len(parts):
        return []
    test = conditions.find_membership([part.first for part in parts])
    remedy = f"{sentences.call_on_all(parts[0].first, test and f'`{test}`')} Make the groups in the same order on all of them."
    lines: list[Evidence] = []
    for part, members in zip(parts, made, strict=True):
        absent = tuple(number for number in sorted(run.ranks) if number not in part.ranks)
        outside = "" if set(absent) & set(members) else ", although it will not contain them"
        text = f"makes a group of {words.ranks(members)}; {words.ranks(absent)} must call new_group for it too{outside}"
        lines.append(WithRemedy(part.first.rank, "stacks", text, remedy=remedy))
    if test is not None:
        lines.append(Evidence(None, "source", f"each rank calls new_group only under `{test}`"))
    return lines
