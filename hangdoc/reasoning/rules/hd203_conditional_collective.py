"""Only some ranks of a group call a collective, for example under `if rank == 0:`.

## What it finds

Some ranks wait in a collective that the others did not call. The others wait in
another operation, or are elsewhere in the program.

## Why it hangs

A collective completes when every rank of its group has called it. A call under
a condition on the rank, a `continue` on one rank, or a loop that one rank
leaves early makes some ranks skip it. The others wait in it forever. DDP skips
the all-reduce of its backward on a rank where a parameter got no gradient.

## Example

```python
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()  # the other ranks wait here
    if dist.get_rank() == 0:
        save(model)
        dist.barrier()  # <- only rank 0 calls it
```

## Use instead

```python
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()
    if dist.get_rank() == 0:
        save(model)
    dist.barrier()  # every rank calls it
```

If only some ranks should take part, create a group of them and pass it as
`group=`. If a local value decides (a loss, a signal, a clock), all_reduce the
decision first.

## How hangdoc knows

torch's record of each rank's calls shows that the ranks made different calls of
one number. The fewer ranks are odd; of two sides of one size, the one whose call
is not what followed the same calls before. The source around the two lines then
shows a condition, or that one line comes after the other. Of the conditions of
packages, only those on the rank count (`one_rank_only`), and those where the stacks
of the ranks part (`self.control.should_save`). A condition that holds on
both sides (`if args.distributed:`) is no reason. A rank that has left the loop of the
call with as many calls as the others left one out in some iteration. So did one
that is in no call now, if it did all the iterations that the others will do, or more
than these, which made one call in each. Then their condition is no proof. If the evidence names a condition,
its variables differ, or it reports that they could not be read, or were assigned
after the test. Without a record (Gloo before torch 2.11), only a condition on the
rank (`if rank == 0:`) is enough for this finding; otherwise it is HD201. In
new_group, the members of the group that it makes must call it: if fewer of them are
elsewhere than in the call, these are missing. Of a group of some ranks, only the
members are compared: who is in a later round, made another call where this one
always followed, and has made fewer calls of the group, left it out. If most
members did, nobody is singled out. If most ranks have left a loop over batches that
nothing ends early, with as many calls as the ranks still in it, the record counts the
calls of those. One in each of their rounds means that the others left one out, if these
did more rounds. If that is not known, their data may have ended earlier: the score is
lower, and the evidence notes it. A condition on the rank did not decide that if the rank
made the same call before. A call in which all workers of Ray Train meet
(`ray.train.report`, `ray.train.collective.barrier`) counts as well, although torch does
not record it.

Of calls in different groups, those of a mesh for example, the record shows the order
on each rank. Where most ranks made one call, each in its own group of that kind, and
some made another one and are in a later round now, these left it out. Groups are of
one kind if their descriptions and sizes are equal. Ranks with other kinds have another
role, and are not compared.

## When it can be wrong

In a first round, nothing was made before, so that two sides of one size stay
equal: then the finding is HD201 and names all ranks. A rank that left a loop
early (HD101, HD102, HD105) may look like one that skipped a call. Where its lines
were not read, no loop around it is known: the score is lower, and no reason is named.
If most ranks make one call too early in a mesh, the others look like the odd ones.

## References

- torch.distributed, collective functions:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Sequence

from hangdoc.reasoning.model.kinds import Subset
from hangdoc.reasoning.model.rank import Class, ranks_of
from hangdoc.reasoning.ranks.conditions import compare_numbers, find_condition, find_tested_in_loop
from hangdoc.reasoning.ranks.counters import count_rounds, with_counter_of
from hangdoc.reasoning.ranks.place import left_loops
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.snapshot import Loop

_SHOWN_NUMBERS = 3
_DECIDE_FIRST = " If a local value decides, all_reduce the decision first."
_ORDER = (
    " If {} the missing call after the one in which {}, only the order differs: make the calls in the same order on every "
    "rank."
)
_FIND_ITERATION = (
    "Find the iteration{} in which {} left out the call: an exception that was caught, a `continue`{}. Let all ranks decide on "
    "it together: all_reduce a flag before the branch."
)
_ROUNDS_UNKNOWN = "how many iterations it did is not known: its data may also have ended earlier"
_SAME_NUMBERS = (
    "Find out whether {} decides in which iterations the call is made. If so, give it the same value on all ranks."
)
_SET_ON_ALL = (
    "Find out what sets `{}` on {} only: a callback, a signal handler, a setting. Set it on all ranks: all_reduce the decision "
    "first."
)
_GRADIENTS = (
    "Find out in which iteration DDP averaged no gradients on {}, this one or an earlier one. If its backward was skipped{}, or "
    "ran under no_sync(), let all ranks decide on that together: all_reduce the flag first. If a parameter got no gradient, use "
    "it in the loss of every rank, or set find_unused_parameters=True."
)


@about(Subset)
def describe(run: Run, blockage: Blockage, kind: Subset) -> Draft:
    makers = tuple(part for part in kind.parts if part not in kind.others)
    asked = kind.asked is not None
    loop = None if asked else kind.loop or _find_loop_of_skip(run, blockage, makers)
    if loop is not None:
        condition = find_condition(makers[0].first, run.ranks[blockage.culprits[0]])
        if condition is None or condition.decides == "decision":  # no value shows which rank met it
            return _describe_skip(run, blockage, kind, makers, loop)
    unread = [part.first.rank for part in kind.parts if part.first.lacks_source]
    gradients = not asked and _lacks_gradients(blockage, kind, makers)
    return Draft(
        # An inferred operation is weak evidence; where the ranks are in the program is strong evidence, if all loops are known.
        confidence=0.6 if not kind.sure else 0.7 if unread else 0.9,
        summary="; ".join([kind.reason, *(_describe_others([part]) for part in kind.others)]),
        evidence=[
            *(
                Evidence(number, "source", "its lines were not read, so a loop that it has left would not be seen")
                for number in unread
            ),
            *sentences.call_evidence(run, kind.parts, deciding=() if asked else ranks_of(makers)),
        ],
        remedy=_SET_ON_ALL.format(kind.asked, words.ranks(blockage.culprits))
        if asked
        else _find_gradients(blockage, makers)
        if gradients
        else _usual_remedy(blockage, kind, makers),
        commands=() if gradients else None,  # the iteration that left it out is over
    )


def _find_loop_of_skip(run: Run, blockage: Blockage, makers: Sequence[Class]) -> Loop | None:
    """The loop over the batches, if a culprit has left it, although it has made as many calls as the ranks that wait inside: it
    left one out in an iteration. None if not."""
    culprits = [rank for number, rank in run.ranks.items() if number in blockage.culprits]
    if not culprits or not makers or set(ranks_of(makers)) & set(blockage.culprits):
        return None
    outside, inside = culprits[0], makers[0].first
    batches = (
        inside.loop.loop if inside.loop is not None else None
    )  # each forward goes over the layers, and leaves that loop
    left = any(each.loop == batches for each in left_loops(outside, inside))
    return batches if left and run.ledger.have_made_as_many(outside.rank, inside.rank) else None


def _describe_skip(run: Run, blockage: Blockage, kind: Subset, makers: Sequence[Class], loop: Loop) -> Draft:
    who, others = blockage.culprits, ranks_of(makers)
    outside, inside = run.ranks[who[0]], makers[0].first
    done, theirs = (count_rounds(with_counter_of(rank, loop))[0] for rank in (outside, inside))
    after, still, when = "", "", "an iteration"
    in_call = outside.wait is not None
    if done is not None and theirs is not None and (done > theirs + 1 or not in_call):
        after, still = f" after {done} iterations", f" after {theirs}"
        when = "some iterations" if done > theirs + 1 else when
    calls = "as many calls as" if in_call else "fewer calls than"
    unknown = kind.loop is not None and done is None
    numbers = sorted(compare_numbers(outside, inside, loop).items())[:_SHOWN_NUMBERS]
    condition = find_condition(inside, outside, passed=run.ledger.has_made_before(outside.rank, inside.rank))
    such = f", or a condition such as {condition.branch}" if condition is not None else ", or a condition"
    return Draft(
        confidence=0.9 if kind.sure and not unknown else 0.6,
        summary=f"{words.ranks(who)} left out a call in {when} of the loop `{loop.header}`: "
        f"{words.verb(who, 'it has', 'they have')} left it{after} with {calls} {words.ranks(others)}, which "
        f"{words.be(others)} still in it{still}, waiting in {words.operation(inside)}; "
        f"{_describe_others([*kind.others] or blockage.awaited)}",
        evidence=[
            *([Evidence(who[0], "source", _ROUNDS_UNKNOWN + words.also(who))] if unknown else []),
            *(
                Evidence(None, "variables", f"`{name}` is {a} on rank {outside.rank}, {b} on rank {inside.rank}")
                for name, (a, b) in numbers
            ),
            *sentences.call_evidence(run, kind.parts, deciding=()),
        ],
        remedy=_SAME_NUMBERS.format(" and ".join(f"`{name}`" for name, _ in numbers))
        if numbers
        else _FIND_ITERATION.format("s" * (when != "an iteration"), words.ranks(who), such),
        commands=(),  # its stack is no longer in those iterations, and is read
    )


def _describe_others(classes: Sequence[Class]) -> str:
    """Where ranks wait, or what else they do."""
    first = classes[0].first
    return (
        words.waiting_in(classes) if first.wait is not None else f"{words.are(ranks_of(classes))} {words.doing(first)}"
    )


def _lacks_gradients(blockage: Blockage, kind: Subset, makers: Sequence[Class]) -> bool:
    """Whether the call that the culprits left out is of DDP's backward."""
    backward = any(
        part.first.wait is not None and part.first.wait.operation.origin == "ddp-backward" for part in makers
    )
    skipped = not set(ranks_of(makers)) & set(blockage.culprits)
    return backward and skipped and not any(part.first.lacks_source for part in kind.parts)


def _find_gradients(blockage: Blockage, makers: Sequence[Class]) -> str:
    """What to do if the culprits averaged no gradients in some iteration."""
    test = find_tested_in_loop(makers[0].first)
    untrue = f" because `{test}` was not true" if test is not None else ""
    return _GRADIENTS.format(words.ranks(blockage.culprits), untrue)


def _usual_remedy(blockage: Blockage, kind: Subset, makers: Sequence[Class]) -> str:
    """For a call that some ranks made and others left out, if its condition is not known."""
    who = blockage.culprits
    order = _ORDER.format(words.do(who, "makes", "make"), words.verb(who, "it waits", "they wait"))
    return (
        sentences.call_on_all((*makers, *kind.parts)[0].first) + _DECIDE_FIRST + (order if kind.perhaps_later else "")
    )
