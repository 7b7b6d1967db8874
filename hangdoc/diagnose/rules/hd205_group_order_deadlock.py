"""Ranks entered the collectives of two groups in opposite order.

## What it finds

A cycle of ranks that wait in collectives of different groups, each for a rank that is in another of these groups'
collectives, with no rank behind another in the program.

## Why it hangs

A rank in a collective of one group cannot enter that of another before it ends. If two ranks share two groups and begin
with different ones, each waits for the other; over rows and columns of a mesh the cycle may be longer.

## Evidence

The group that each rank waits in with its members, as the ranks' own interpreters list them, and the lines.

## What to do

Let all ranks reduce over the groups in one fixed order (tensor parallel before data parallel, say), never in the order of
a set, of a completion, or of a branch on the rank.

## When it would be wrong

Where a rank went past the other's call in the same program order: that is HD203. Asynchronous collectives of different
groups may overlap without any deadlock; only waits are looked at here.

## References

- torch.distributed, groups: https://docs.pytorch.org/docs/stable/distributed.html
- NCCL, using multiple communicators concurrently: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import GroupOrder
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.rules import parties
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import numbers

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
