"""Ranks wait in different operations at the same point.

## What it finds

All ranks of a group stand still in collectives, but not in the same one: no one of them is missing, and none can go on.
Or they are in the same broadcast, gather, reduce or scatter, but do not name the same root.

## Why it hangs

A collective ends when every rank of its group has called it. If one rank calls `all_reduce` where the others call
`barrier`, each waits for the others for ever. Gloo pairs operations by their order alone, so the ranks may also have
parted earlier: equal sizes of different reductions pair up without a word, and the hang comes later than its cause.

## Evidence

The operation and the line of every rank, the `src` or `dst` of its call, and the conditions in the source around the
calls.

## What to do

Look at the two call sites. Every rank must call the same collectives of a group in the same order: move collectives out
of branches that depend on the rank, and out of `try` blocks that one rank may leave. `src` and `dst` are global ranks, and
the same number on every rank of the group.

## When it would be wrong

When a rank left its loop before the others: that is HD101, HD102 or HD105. When a rank went past a call that the others make,
or makes one that they do not: that is HD203.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Mismatch, Roots
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import parties
from hangdoc.diagnosis import Finding

CODE = "HD201"
NAME = "collective-mismatch"
ABOUT = (Mismatch, Roots)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks in different collectives at the same point, or in one collective with different roots."""
    kind = blockage.kind
    if isinstance(kind, Roots):
        return _different_roots(run, blockage, kind)
    assert isinstance(kind, Mismatch)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        # An operation that was inferred, not read from a frame, is weak evidence of a mismatch.
        confidence=(0.88 if kind.reason else 0.7) if kind.sure else 0.4,
        summary=f"ranks are waiting in calls that do not match: {parties.calls(kind.parts)}"
        + (f" ({kind.reason})" if kind.reason else ""),
        evidence=parties.evidence(run, kind.parts),
        remedy="Make every rank call the same collectives in the same order. Compare the call sites and the branches "
        "around them.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )


def _different_roots(run: Run, blockage: Blockage, kind: Roots) -> Finding:
    odd = kind.values.values[-1][1][0]
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.93,
        summary=f"ranks are waiting in {words.operation(run.ranks[odd])} with different roots: "
        f"{words.values_by_rank(kind.values)}",
        evidence=[*words.class_evidence(blockage.at), *words.standstill(run)],
        remedy="Pass the same src (or dst) on every rank: the global rank of the sender (or receiver).",
        commands=words.look_again(run.ranks[odd]),
    )
