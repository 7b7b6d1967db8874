"""The ranks' calls first differ long before the point where the run hangs.

## What it finds

Ranks wait in calls that do not match. Since an earlier call, the calls of some
ranks are those of the others, shifted: the n-th call of one rank is what the
others make as their n+1-th.

## Why it hangs

Collectives are paired by their order alone. If a rank skips one, its next call
is paired with the skipped call of the others. As long as operation and size are
equal, nothing fails: gradients are averaged with other numbers, and training
continues with wrong values. The run hangs only where a different operation or
size comes up, often many steps later.

## Example

```python
for param in model.parameters():
    if param.grad is not None:  # <- None on one rank: an unused branch
        dist.all_reduce(param.grad)
dist.all_reduce(loss)
```

## Use instead

```python
for param in model.parameters():
    if param.grad is None:
        param.grad = torch.zeros_like(param)
    dist.all_reduce(param.grad)
dist.all_reduce(loss)
```

Look at the line of the first difference, not at the line of the hang. Discard
what was trained since then: the ranks have averaged numbers that do not belong
together.

## How hangdoc knows

It reads torch's record of each rank's last calls (operation, sizes, call site)
and compares them number by number. It reports a difference only if the calls
match with the shift from one number on to the end and agreed before it.

## When it can be wrong

All calls come from one line and have one size: then nothing shows a shift. If
the first difference is older than the record (2,000 calls by default), only the
shift is reported. A rank that makes one call more and a rank that skips one
look the same if there are only two ranks.

## References

- torch, flight recorder:
  https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.causes.divergence import DivergedEarlier
from hangdoc.reasoning.ledger.history import FirstDifference
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.reasoning.text import call_words, next_steps, words
from hangdoc.reasoning.views import call_views


@about(DivergedEarlier)
def explain_shift(run: Run, blockage: Blockage, cause: DivergedEarlier) -> Draft:
    difference = cause.difference
    return Draft(
        confidence=0.96 if difference.number is not None else 0.85,
        summary=_summary(cause),
        evidence=[*_evidence(difference), *words.stacks(run, (*blockage.awaited, *blockage.waiting))],
        remedy=f"Find out which call {words.ranks(difference.ranks)} {_did(difference)} before "
        f"{call_words.place_of(difference.call)}, and make every rank call the same collectives in the same order. "
        "Do not use what was trained since.",
        commands=next_steps.look_again(run.ranks[difference.ranks[0]]),
        first_difference=call_views.first_difference(cause.group, difference),
    )


def _did(difference: FirstDifference) -> str:
    return "skipped" if difference.shift > 0 else "made in addition"


def _summary(cause: DivergedEarlier) -> str:
    difference = cause.difference
    calls = abs(difference.shift)
    direction = "ahead of" if difference.shift > 0 else "behind"
    shift = f"{call_words.count(calls)} {direction} {words.ranks(difference.others)}"
    if difference.number is None:
        return (
            f"{words.are(difference.ranks)} {shift} in {call_words.group_name(cause.group)}, since a call that is older than the "
            "record"
        )
    steps = f" and {difference.steps_ago} steps" if difference.steps_ago else ""
    return (
        f"the ranks' calls first differ at number {difference.number} of {call_words.group_name(cause.group)}, "
        f"{call_words.count(difference.calls_ago)}{steps} before the hang: {words.ranks(difference.ranks)} called "
        f"{difference.call.op} at {call_words.place_of(difference.call)} where {words.ranks(difference.others)} called "
        f"{difference.others_call.op} at {call_words.place_of(difference.others_call)}; since then "
        f"{words.verb(difference.ranks, 'it is', 'they are')} {shift}"
    )


def _evidence(difference: FirstDifference) -> list[Evidence]:
    first = difference.ranks[0]
    text = (
        f"{difference.matched:.0%} of the calls since then match those of {words.ranks(difference.others)} if shifted by "
        f"{abs(difference.shift)}, and {difference.matched_unshifted:.0%} without the shift"
    )
    return [Evidence(first, call_words.PROBE, text + words.also(difference.ranks))]
