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
from hangdoc.diagnose.kinds import Mismatch, Roots, Threads
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import parties
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD201"
NAME = "collective-mismatch"
ABOUT = (Mismatch, Roots, Threads)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks in different collectives at the same point, or ranks that name different roots."""
    kind = blockage.kind
    if isinstance(kind, Roots):
        return _different_roots(run, blockage, kind)
    if isinstance(kind, Threads):
        return _two_threads(run, blockage, kind)
    assert isinstance(kind, Mismatch)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        # An operation that is only concluded is weak evidence of a difference.
        confidence=(0.88 if kind.reason else 0.7) if kind.sure else 0.4,
        summary=f"{parties.waits(kind.parts)}: none of these can end" + (f" ({kind.reason})" if kind.reason else ""),
        evidence=parties.evidence(run, kind.parts),
        remedy="Make every rank call the same collectives in the same order: compare the two call sites and the "
        "branches around them.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )


def _different_roots(run: Run, blockage: Blockage, kind: Roots) -> Finding:
    odd = kind.values.values[-1][1][0]
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.93,
        summary=f"ranks wait in {words.operation(run.ranks[odd])} with different roots: {words.said(kind.values)}",
        evidence=[*words.class_evidence(blockage.at), *words.standstill(run)],
        remedy="Give every rank the same src (or dst): the global rank of the one that sends to all, or receives from all.",
        commands=words.look_again(run.ranks[odd]),
    )


def _two_threads(run: Run, blockage: Blockage, kind: Threads) -> Finding:
    first, name, op = kind.calls[0]
    who = blockage.culprits
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.85,
        summary=f"two threads of {words.ranks(who)} are in collectives of the same group: the main thread in "
        f"{words.operation(first.first)}, {name} in {op}; nothing keeps their order the same on all ranks",
        evidence=[
            *words.class_evidence(blockage.at),
            *(
                Evidence(rank=one.first.rank, probe="stacks", text=f"thread {thread} is in {called}")
                for one, thread, called in kind.calls
            ),
            *words.standstill(run),
        ],
        remedy="Give the second thread a process group of its own (dist.new_group), or make its calls in the main thread.",
        commands=words.look_again(run.ranks[who[0]]),
    )
