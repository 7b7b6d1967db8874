"""Ranks wait in different operations at the same point.

## What it finds

All ranks of a group stand still in collectives, but not in the same one: no one of them is missing, and none can go on.

## Why it hangs

A collective ends when every rank of its group has called it. If one rank calls `all_reduce` where the others call
`barrier`, each waits for the others for ever. Gloo pairs operations by their order alone, so the ranks may also have
parted earlier: equal sizes of different reductions pair up without a word, and the hang comes later than its cause.

## Evidence

The operation and the line of every rank, and the conditions in the source around the calls.

## What to do

Look at the two call sites. Every rank must call the same collectives of a group in the same order: move collectives out
of branches that depend on the rank, and out of `try` blocks that one rank may leave.

## When it would be wrong

When a rank merely ran out of data and went on: that is HD101 or HD102, and then this finding stands below as its
consequence.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import progress, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD201"
NAME = "collective-mismatch"
EXPLAINS: tuple[str, ...] = ()


def check(run: Run) -> Iterator[Finding]:
    """One finding for a cycle of ranks in different collectives."""
    stuck = [r for r in run.waiting() if not r.moving and r.wait is not None and r.wait.kind in ("collective", "store")]
    in_cycle = [rank for rank in stuck if rank.rank in run.causes]
    camps: dict[object, list[Rank]] = {}
    for rank in in_cycle:
        camps.setdefault(rank.wait.point if rank.wait is not None else None, []).append(rank)
    if len(camps) < 2:
        return
    groups = sorted(camps.values(), key=lambda group: (len(group), group[0].rank))
    # An operation that is only concluded, or whose name nobody tells, is weak evidence of a difference.
    sure = all(rank.wait is not None and rank.wait.sure for rank in in_cycle)
    culprits, reason = _culprits(groups) if sure else (in_cycle, "")
    waits = "; ".join(
        f"{words.ranks(r.rank for r in group)} {words.verb([r.rank for r in group], 'waits', 'wait')} in "
        f"{words.operation(group[0])}"
        for group in reversed(groups)
    )
    yield words.finding(
        CODE,
        NAME,
        severity="error" if sure else words.by_age(run),
        confidence=0.88 if reason else 0.7 if sure else 0.4,
        culprits=(rank.rank for rank in culprits),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{waits}: none of these can end" + (f" ({reason})" if reason else ""),
        evidence=[
            *words.class_evidence(in_cycle),
            *(
                Evidence(
                    rank=rank.rank,
                    probe="source",
                    text=f"its call stands under `{rank.frame.conditions[-1]}`",
                )
                for rank in culprits[:3]
                if rank.frame is not None and rank.frame.conditions
            ),
            *words.silence(run),
        ],
        remedy="Make every rank call the same collectives in the same order: compare the two call sites and the "
        "branches around them.",
        commands=words.look_again(culprits[0]),
    )


def _culprits(groups: list[list[Rank]]) -> tuple[list[Rank], str]:
    """(ranks to blame, why these); all of them and no reason where nothing singles one out."""
    # Who is at the earliest point stands where the ranks parted. Whoever is further got there with the help of those
    # who agreed with it, unless only one group is left behind: then the others went past its call.
    last = [group for group in groups if not any(progress.is_ahead(group[0], other[0]) for other in groups)]
    rest = [group for group in groups if group not in last]
    for mine in last:
        others = [group for group in groups if group is not mine]
        if all(_singled_out(mine[0], theirs[0]) for theirs in others):
            return mine, f"the call of {words.ranks(r.rank for r in mine)} stands under a condition on the rank"
    if len(last) == 1 and rest:
        ahead = [rank for group in rest for rank in group]
        if all(progress.is_ahead(rank, last[0][0]) for rank in ahead):
            left_behind = [rank.rank for rank in last[0]]
            return ahead, (
                f"{words.ranks(r.rank for r in ahead)} went past the call that {words.ranks(left_behind)} "
                f"{words.verb(left_behind, 'waits', 'wait')} in"
            )
    smallest = last[0] if last else groups[0]
    if len(last) > 1 and all(len(group) > len(smallest) for group in last[1:]):
        return smallest, f"{words.ranks(r.rank for r in smallest)} against the rest"
    return [rank for group in last or groups for rank in group], ""


def _singled_out(one: Rank, other: Rank) -> bool:
    """Whether `one` stands in a branch whose condition speaks of the rank, and `other` does not."""
    mine = one.frame.conditions if one.frame is not None else ()
    theirs = other.frame.conditions if other.frame is not None else ()
    own = [c for c in mine if c not in theirs and "rank" in c.lower() and not c.startswith("not (")]
    return bool(own)
