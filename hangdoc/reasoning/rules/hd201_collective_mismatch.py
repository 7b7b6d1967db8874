"""Ranks wait in different collectives at the same point of the program.

## What it finds

All ranks of a group wait in collectives, but not in the same one. No rank is
missing, and none can continue. Or the ranks wait in the same broadcast, gather,
reduce or scatter, but with different roots. Or the handler of a signal that
only some ranks have received calls a collective. Or two threads of a rank call
collectives of one group: torch does not give their calls the same order on
every rank.

## Why it hangs

A collective completes when every rank of its group has called it. If one rank
calls `barrier` while the others call `all_reduce`, each side waits for the
other forever. Gloo pairs operations only by their order, so the mistake may be
earlier than the hang: two reductions of equal size pair up without an error.

## Example

```python
if dist.get_rank() == 0:
    dist.barrier()  # <- the other ranks call all_reduce here
else:
    dist.all_reduce(loss)
```

## Use instead

```python
dist.all_reduce(loss)
dist.barrier()
```

Every rank must call the same collectives of a group in the same order. Move
collectives out of branches that depend on the rank, and out of `try` blocks
that a single rank may leave. `src` and `dst` are global ranks and must be equal
on all ranks of the group.

## How hangdoc knows

It reads the operation and the line of every rank, the `src` or `dst` argument
of its call, the conditions in the source around the calls, and the stacks of
the other threads. If torch's record shows that each side made its last calls at
lines of its own, the evidence names the first of these calls. Python calls the
handler of a signal with its number and the frame that it interrupted, so hangdoc
sees which frame is one.

## When it can be wrong

A rank left its loop before the others (HD101, HD102, HD105), or it skipped a
call that the others make (HD203).

## References

- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.reasoning.causes.signals import HandlerCalls
from hangdoc.reasoning.model.kinds import Mismatch, Roots, Threads
from hangdoc.reasoning.model.rank import ranks_of
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import call_words, next_steps, words

_SAME_ORDER = (
    "Make every rank call the same collectives in the same order. Compare the call sites and the branches around them."
)
_MET_BEFORE = "such calls have met before, each at a line of its own: the branches around them are no reason"
_NEXT_ROUND = (
    "Find out why {} came to the next call earlier than the others: an exception that was caught, or a loop that ended in "
    "another round. Let all ranks end a round together: all_reduce the decision."
)


@about(Mismatch)
def _different_calls(run: Run, blockage: Blockage, kind: Mismatch) -> Draft:
    reason = f" ({kind.reason})" if kind.reason else ""
    return Draft(
        # An operation that was inferred, not read from a frame, is weak evidence of a mismatch.
        confidence=(0.88 if kind.reason else 0.7) if kind.sure else 0.4,
        summary=f"ranks are waiting in calls that do not match: {sentences.name_calls(kind.parts[::-1])}{reason}",
        evidence=[
            *([Evidence(None, call_words.PROBE, _MET_BEFORE)] if kind.met_before else ()),
            *sentences.call_evidence(run, kind.parts, deciding=() if kind.met_before else ranks_of(kind.parts)),
        ],
        remedy=_NEXT_ROUND.format(words.ranks(blockage.culprits)) if kind.met_before else _SAME_ORDER,
    )


@about(HandlerCalls)
def _call_of_handler(run: Run, blockage: Blockage, cause: HandlerCalls) -> Draft:
    who = cause.culprits or (cause.rank.rank,)
    return Draft(
        confidence=0.93,
        summary=f"{words.are(who)} waiting in {words.operation(cause.rank)}, which the handler of {cause.handling.signal} calls; "
        f"{words.waiting_in([each for each in (*blockage.awaited, *blockage.waiting) if not set(each.ranks) & set(who)])}",
        evidence=[
            Evidence(cause.rank.rank, "stacks", str(cause.handling)),
            *words.sides(run, blockage),
        ],
        remedy="In a handler, only set a flag, and let the ranks agree on it in their loop (all_reduce). A rank that waits in a "
        "call does not come to its own handler.",
    )


@about(Roots)
def _different_roots(run: Run, blockage: Blockage, kind: Roots) -> Draft:
    odd = run.ranks[kind.values.values[-1][1][0]]
    return Draft(
        confidence=0.93,
        summary=f"ranks are waiting in {words.operation(odd)} with different roots: {words.values_by_rank(kind.values.values)}",
        evidence=words.stacks(run, blockage.awaited),
        remedy="Pass the same src (or dst) on every rank: the global rank of the sender (or receiver).",
        commands=next_steps.look_again(odd),
    )


@about(Threads)
def _two_threads(run: Run, blockage: Blockage, kind: Threads) -> Draft:
    first, name, op = kind.calls[0]
    who = blockage.culprits
    return Draft(
        confidence=0.85,
        summary=f"two threads of {words.ranks(who)} are waiting in collectives of the same group: the main thread in "
        f"{words.operation(first.first)}, thread {name} in {op}",
        evidence=[
            *words.class_evidence(blockage.awaited),
            *(
                Evidence(each.first.rank, "stacks", f"thread {thread} is waiting in {called}")
                for each, thread, called in kind.calls
            ),
            *words.standstill(run),
        ],
        remedy="Give the second thread a process group of its own (dist.new_group), or call the collective in the main "
        "thread. Calls of two threads in one group may have a different order on each rank.",
    )
