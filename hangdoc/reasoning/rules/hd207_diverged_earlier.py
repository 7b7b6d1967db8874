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
shift is reported, and only if most ranks agree. Two calls that alternate look
the same for ranks that were shifted by one call and for ranks that call them in
another order. Then the finding is another one, with a low score and a line about
this doubt. A rank that makes one call more and a rank that skips one look the
same if there are only two ranks.

## References

- torch, flight recorder:
  https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.causes.disagreements import DivergedEarlier
from hangdoc.reasoning.ledger.history import FirstDifference
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.ledger import Call
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.reasoning.text import call_words, next_steps, words
from hangdoc.reasoning.views import call_views

_REMEDY = "Make every rank call the same collectives in the same order. Do not use what was trained since."


@about(DivergedEarlier)
def explain_shift(run: Run, blockage: Blockage, cause: DivergedEarlier) -> Draft:
    difference = cause.difference
    return Draft(
        confidence=0.96 if difference.number is not None else 0.85,
        summary=_summary(cause),
        evidence=[*_evidence(cause), *words.stacks(run, (*blockage.awaited, *blockage.waiting))],
        remedy=f"{_find_out(difference)} {_REMEDY}",
        commands=next_steps.look_again(run.ranks[difference.ranks[0]]),
        first_difference=call_views.first_difference(cause.group, difference),
    )


def _find_out(difference: FirstDifference) -> str:
    who = words.ranks(difference.ranks)
    if difference.number is None:
        what = "skipped" if difference.shift > 0 else "made in addition"
        return f"Find out which call {who} {what} before {call_words.place_of(difference.call)}."
    if difference.first_shift > 0:
        return f"Find out why {who} did not make the {_name(difference.others_call)}."
    return f"Find out why {who} made the {_name(difference.call)}, and the others did not."


def _summary(cause: DivergedEarlier) -> str:
    difference, group = cause.difference, call_words.group_name(cause.group)
    off = abs(difference.shift)
    others = words.ranks(difference.others)
    earlier = "earlier" if difference.shift > 0 else "later"
    paired = (
        f"{words.verb(difference.ranks, 'its calls are', 'their calls are')} paired with {earlier} ones of {others} "
        f"({call_words.count(off)} off)"
    )
    if difference.number is None:
        who = words.ranks(difference.ranks)
        return f"{who} skipped or added a call of {group} that is older than the record: {paired}"
    steps = f" and {difference.steps_ago} steps" if difference.steps_ago else ""
    ago = f"{call_words.count(difference.calls_ago)}{steps} before the hang"
    return f"{_event(difference)} at number {difference.number} of {group}, {ago}; since then {paired}"


def _name(call: Call) -> str:
    return f"{call.op} at {call_words.place_of(call)}"


def _event(difference: FirstDifference) -> str:
    """What happened first. If as many ranks did one thing as the other, nothing shows which is wrong."""
    who, others = words.ranks(difference.ranks), words.ranks(difference.others)
    tied = len(difference.ranks) == len(difference.others)
    times = abs(difference.first_shift)
    if difference.first_shift > 0:
        call = call_words.name_call(difference.others_call)
        what = call if times == 1 else f"{call_words.count(times)}, first {call},"
        return f"{who} skipped {what}" + (
            f", or {others} made {words.verb(range(times), 'it', 'them')} in addition," * tied
        )
    call = call_words.name_call(difference.call)
    what = call if times == 1 else f"{call_words.count(times)}, first {call},"
    return f"{who} made {what} in addition" + (
        f", or {others} skipped {words.verb(range(times), 'it', 'them')}," * tied
    )


def _evidence(cause: DivergedEarlier) -> list[Evidence]:
    difference = cause.difference
    first = difference.ranks[0]
    text = (
        f"{difference.matched:.0%} of the calls since then match those of {words.ranks(difference.others)} if shifted by "
        f"{abs(difference.shift)}, and {difference.matched_unshifted:.0%} without the shift"
    )
    lines = [Evidence(first, call_words.PROBE, text + words.also(difference.ranks))]
    if difference.number is not None:
        lines = [*(_calls_around(cause, ranks) for ranks in (difference.ranks, difference.others)), *lines]
    return lines


def _calls_around(cause: DivergedEarlier, ranks: tuple[int, ...]) -> Evidence:
    """`calls 201 to 203: all_reduce (train.py:12), all_reduce (train.py:15), barrier (train.py:20)`."""
    at = cause.difference.number or 0
    calls = cause.group.ranks[ranks[0]].by_number()
    shown = [number for number in range(at - 1, at + 2) if number in calls]
    names = ", ".join(f"{calls[number].op} ({call_words.place_of(calls[number])})" for number in shown)
    return Evidence(ranks[0], call_words.PROBE, f"calls {shown[0]} to {shown[-1]}: {names}" + words.also(ranks))
