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

from collections.abc import Iterator

from hangdoc.diagnose import camps, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import numbers

CODE = "HD205"
NAME = "group-order-deadlock"
EXPLAINS = ("HD202",)


def check(run: Run) -> Iterator[Finding]:
    """One finding for a cycle over groups."""
    found = camps.case(run)
    if found is None or found.story != "order":
        return
    yield words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.9,
        culprits=(rank.rank for rank in found.culprits),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{found.waits()}: they entered these groups' collectives in opposite order",
        evidence=[*(_membership(camp[0]) for camp in found.camps[:4]), *found.evidence(run)],
        remedy="Let all ranks go through the groups in one fixed order.",
        commands=words.look_again(found.culprits[0]),
    )


def _membership(rank: Rank) -> Evidence:
    members = rank.wait.members if rank.wait is not None else None
    who = f"ranks {numbers(members)}" if members else "all ranks"
    name = rank.wait.operation.group if rank.wait is not None else None
    return Evidence(rank=rank.rank, probe="interpreter", text=f"group {name or 'default'} has {who}")
