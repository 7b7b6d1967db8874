"""A rank left the loop before the others, and no difference in the data says why.

## What it finds

A rank has left a loop that the others are still inside, and they wait for that rank in a collective of the loop. Nothing that
was seen says that its data ended earlier.

## Why it hangs

Every round of the loop has a collective in which all ranks must take part. A rank that leaves by its own decision (early
stopping on a local loss, a `break`, an exception that was swallowed around the loop, a time limit) does not call it again.

## Evidence

The stacks after and inside the loop, the loop counters of both, and the conditions of the loop's `break` and `return`
statements with the values of their variables on both ranks.

## What to do

Take the decision together: all_reduce the flag (MAX) before anybody acts on it, so that all ranks leave in the same round. Let
an exception end the whole run.

## When it would be wrong

Where the data did end earlier and neither counters, lengths nor folders could be seen.

## References

- torch.distributed.all_reduce: https://docs.pytorch.org/docs/stable/distributed.html
- torch.distributed.algorithms.join: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import exits
from hangdoc.diagnose.causes.data import counts
from hangdoc.diagnose.kinds import LeftLoop
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import left_loop
from hangdoc.diagnosis import Finding

CODE = "HD105"
NAME = "left-loop-early"
ABOUT = (LeftLoop,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that left the loop before others."""
    kind = blockage.kind
    assert isinstance(kind, LeftLoop)  # noqa: S101  (see ABOUT)
    short, inside = kind.short.first, kind.inside
    done, _ = counts(short, inside.first)
    total = short.loop.total if short.loop is not None else None
    of = f" of {total}" if done is not None and total is not None and total > done else ""
    who = kind.short.ranks
    after = left_loop.count(kind, done, f"{of.strip()} iterations".strip()) if done is not None else ""
    after = f" ({after})" if after and len(who) > 1 else f" {after}".rstrip()
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.8 if of else 0.7,
        summary=f"{words.ranks(who)} left the loop `{kind.loop.header}`{after}; {words.ranks(inside.ranks)} "
        f"{words.be(inside.ranks)} still inside it, waiting in {words.operation(inside.first)}",
        evidence=[*exits.of(kind), *left_loop.evidence(kind), *words.standstill(run)],
        remedy="Make all ranks leave the loop in the same iteration: all_reduce the decision before acting on it.",
        commands=words.look_again(short),
    )
