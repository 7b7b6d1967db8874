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

Where a rank passed the call because it left a loop early: that is HD101, HD102 or HD105. Where both parties stand in two arms
of one branch: that is HD201.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Subset
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import parties
from hangdoc.diagnosis import Finding

CODE = "HD203"
NAME = "conditional-collective"
ABOUT = (Subset,)


def say(run: Run, blockage: Blockage) -> Finding:
    """A collective that only some ranks of the group call."""
    kind = blockage.kind
    assert isinstance(kind, Subset)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        # An inferred operation is weak evidence; the ranks' positions in the program are strong evidence.
        confidence=0.9 if kind.sure else 0.6,
        summary=f"only some ranks make the same call: {parties.calls(kind.parts)} ({kind.reason})",
        evidence=parties.evidence(run, kind.parts),
        remedy="Make the call on every rank of the group, or pass a group that contains only the ranks that call it. If a "
        "local value decides, all_reduce the decision first.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )
