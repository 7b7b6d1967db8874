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
match with the shift from one number on to the end and agreed before it. Calls
of one line and one size show no shift. Then the counters of the loop may: if one
rank has made as many calls in 18 rounds as another in 24, and both numbers per
round are whole, one of them makes more calls in each round.

## When it can be wrong

All calls come from one line and have one size, and no counter of the loop was
read: then nothing shows a shift. If the first difference is older than the record (2,000 calls by default), only the
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

from hangdoc.program import around
from hangdoc.reasoning.causes.disagreements import DivergedEarlier
from hangdoc.reasoning.causes.rounds import CallsPerRound
from hangdoc.reasoning.ledger.history import FirstDifference
from hangdoc.reasoning.model.ledger import Call
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import call_words, words
from hangdoc.reasoning.views import job_views


@about(DivergedEarlier)
def describe_shift(run: Run, blockage: Blockage, cause: DivergedEarlier) -> Draft:
    difference = cause.difference
    return Draft(
        confidence=0.96 if difference.number is not None else 0.85,
        summary=_summary(cause),
        evidence=[*_evidence(cause), *words.stacks(run, (*blockage.awaited, *blockage.waiting))],
        remedy=f"{_find_out(difference)} Make every rank call the same collectives in the same order. Do not use what was "
        "trained since.",
        first_difference=job_views.first_difference(cause.group, difference),
    )


@about(CallsPerRound)
def describe_calls_per_round(run: Run, blockage: Blockage, cause: CallsPerRound) -> Draft:
    values = cause.counts.values
    (most, with_most), (fewest, with_fewest) = max(values), min(values)
    name = f"{cause.call.name} ({call_words.place_of(cause.call)})"
    done = [f"{words.have(ranks)} completed {cause.rounds[ranks[0]]}" for ranks in (with_most, with_fewest)]
    frame = cause.inside.frame
    inner = around(frame)[-1:] if frame is not None else []
    loops = [f" of `{loop.header}`" for loop in inner if loop != cause.view.loop]
    return Draft(
        confidence=0.93,
        summary=f"{words.do(with_most, 'makes', 'make')} {call_words.count(most)} of {name} in each round of "
        f"`{cause.view.loop.header}`, {words.do(with_fewest, 'makes', 'make')} {fewest}; {done[0]} rounds, {done[1]}",
        evidence=words.stacks(run, (*blockage.awaited, *blockage.waiting)),
        remedy=f"Find out why {words.do(with_most, 'makes', 'make')} more of these calls in a round than "
        f"{words.ranks(with_fewest)}: compare the number of rounds{''.join(loops)} and the sizes. Make as many calls on every "
        "rank. Do not use what was trained since: the calls of different rounds have met.",
    )


def _find_out(difference: FirstDifference) -> str:
    who = words.ranks(difference.ranks)
    if difference.number is None:
        what = "skipped" if difference.shift > 0 else "made in addition"
        return f"Find out which call {who} {what} before {call_words.place_of(difference.call)}."
    skipped = difference.first_shift > 0
    call = difference.others_call if skipped else difference.call
    name = f"{call.name} at {call_words.place_of(call)}"
    return (
        f"Find out why {who} {f'did not make the {name}' if skipped else f'made the {name}, and the others did not'}."
    )


def _summary(cause: DivergedEarlier) -> str:
    difference, group = cause.difference, call_words.group_name(cause.group)
    paired = (
        f"{words.verb(difference.ranks, 'its calls are', 'their calls are')} paired with "
        f"{'earlier' if difference.shift > 0 else 'later'} ones of {words.ranks(difference.others)} "
        f"({call_words.count(abs(difference.shift))} off)"
    )
    if difference.number is None:
        who = words.ranks(difference.ranks)
        return f"{who} skipped or added a call of {group} that is older than the record: {paired}"
    steps = f" and {difference.steps_ago} steps" if difference.steps_ago else ""
    ago = f"{call_words.count(difference.calls_ago)}{steps} before the hang"
    return f"{_event(cause)} at number {difference.number} of {group}, {ago}; since then {paired}"


def _event(cause: DivergedEarlier) -> str:
    """What happened first. If as many ranks did one thing as the other, nothing shows which is wrong."""
    difference = cause.difference
    who, others = words.ranks(difference.ranks), words.ranks(difference.others)
    times, skipped = abs(difference.first_shift), difference.first_shift > 0
    beside = [call for ranks in (difference.ranks, difference.others) for call in _calls_around(cause, ranks).values()]
    call = call_words.name_call(difference.others_call if skipped else difference.call, beside=beside)
    what = call if times == 1 else f"{call_words.count(times)}, first {call},"
    event = f"{who} skipped {what}" if skipped else f"{who} made {what} in addition"
    if len(difference.ranks) != len(difference.others):
        return event
    them = words.verb(range(times), "it", "them")
    return f"{event}, or {others} " + (f"made {them} in addition," if skipped else f"skipped {them},")


def _evidence(cause: DivergedEarlier) -> list[Evidence]:
    difference = cause.difference
    text = (
        f"{difference.matched:.0%} of the calls since then match those of {words.ranks(difference.others)} if shifted by "
        f"{abs(difference.shift)}, and {difference.matched_unshifted:.0%} without the shift"
    )
    sides = (difference.ranks, difference.others) if difference.number is not None else ()
    around = [_calls_around(cause, ranks) for ranks in sides]
    beside = [call for calls in around for call in calls.values()]
    lines = (_describe_calls(ranks, calls, beside) for ranks, calls in zip(sides, around, strict=True))
    return [*lines, Evidence(difference.ranks[0], call_words.PROBE, text + words.also(difference.ranks))]


def _calls_around(cause: DivergedEarlier, ranks: tuple[int, ...]) -> dict[int, Call]:
    """The calls at the first difference and beside it, by their numbers, of ranks that made the same ones."""
    calls, number = cause.group.ranks[ranks[0]].by_number(), cause.difference.number or 0
    return {at: calls[at] for at in range(number - 1, number + 2) if at in calls}


def _describe_calls(ranks: tuple[int, ...], calls: dict[int, Call], beside: list[Call]) -> Evidence:
    """`calls 201 to 203: all_reduce (train.py:12), all_reduce (train.py:15), barrier (train.py:20)`."""
    names = ", ".join(
        f"{call.name}{call_words.at_place(call, beside) or ' (an unknown line)'}" for call in calls.values()
    )
    text = f"calls {min(calls)} to {max(calls)}: {names}" + words.also(ranks)
    return Evidence(ranks[0], call_words.PROBE, text)
