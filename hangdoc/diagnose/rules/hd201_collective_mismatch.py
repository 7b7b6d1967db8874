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

When a rank merely ran out of data and went on: that is HD101 or HD102, and then this finding stands below as its
consequence. When a rank went past a call that the others make, or makes one that they do not: that is HD203.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import camps, words
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding

CODE = "HD201"
NAME = "collective-mismatch"
EXPLAINS = ("HD203", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """One finding for a cycle of ranks in different collectives at the same point, or for ranks that name different roots."""
    for roots in camps.roots(run):
        yield _different_roots(run, roots)
    found = camps.case(run)
    if found is None or found.story != "mismatch":
        return
    yield words.finding(
        CODE,
        NAME,
        # An operation that is only concluded is weak evidence of a difference.
        severity="error" if found.sure else words.by_age(run),
        confidence=(0.88 if found.reason else 0.7) if found.sure else 0.4,
        culprits=(rank.rank for rank in found.culprits),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{found.waits()}: none of these can end" + (f" ({found.reason})" if found.reason else ""),
        evidence=found.evidence(run),
        remedy="Make every rank call the same collectives in the same order: compare the two call sites and the "
        "branches around them.",
        commands=words.look_again(found.culprits[0]),
    )


def _different_roots(run: Run, roots: words.Camps) -> Finding:
    ranks = [run.ranks[number] for _, group in roots for number in group]
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.93,
        culprits=words.odd_ones(roots),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"ranks wait in {words.operation(ranks[0])} with different roots: {words.said(roots)}",
        evidence=[*words.class_evidence(ranks), *words.standstill(run)],
        remedy="Give every rank the same src (or dst): the global rank of the one that sends to all, or receives from all.",
        commands=words.look_again(ranks[-1]),
    )
