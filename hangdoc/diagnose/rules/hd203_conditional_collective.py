"""A collective is called by a subset of its group only (`if rank == 0:`).

## What it finds

Some ranks wait in a collective that the others have passed without calling it: they wait in a later operation.

## Why it hangs

A collective ends when every rank of its group has called it. One that stands under a condition on the rank, that one rank
skips with `continue`, or that lies behind a loop which one rank leaves early, is called by a part of the group; the rest
waits in the next one.

## Evidence

The lines of both parties in the same function and the same round of its loops, the condition around the call in the
source, and the operations that they wait in.

## What to do

Take the collective out of the branch, so that every rank calls it; or make a group of those ranks that do and give it as
`group=`. A decision taken from local values (a loss, a signal, a clock) must be agreed on first: all_reduce the flag.

## When it would be wrong

Where a rank passed the call because its data ran out: that is HD101 or HD102, and this finding stands below. Where both
parties stand in two arms of one branch: that is HD201.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import camps, words
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding

CODE = "HD203"
NAME = "conditional-collective"
EXPLAINS: tuple[str, ...] = ()


def check(run: Run) -> Iterator[Finding]:
    """One finding for a collective that a part of the group went past."""
    found = camps.case(run)
    if found is None or found.story != "subset":
        return
    yield words.finding(
        CODE,
        NAME,
        # An operation that is only concluded is weak evidence; where the ranks stand in the program is not.
        severity="error" if found.sure else words.by_age(run),
        confidence=0.9 if found.sure else 0.6,
        culprits=(rank.rank for rank in found.culprits),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{found.waits()}: only a part of the group makes the first call ({found.reason})",
        evidence=found.evidence(run),
        remedy="Let every rank of the group make the call, or give it a group of those that do; agree on a decision "
        "taken from local values before acting on it.",
        commands=words.look_again(found.culprits[0]),
    )
