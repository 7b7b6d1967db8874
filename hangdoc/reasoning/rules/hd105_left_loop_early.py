"""A rank left the loop before the others, and its data does not explain why.

## What it finds

A rank has left a loop while other ranks are still inside it and wait for that
rank in a collective, a send or a receive. Nothing shows that its data ended
earlier.

## Why it hangs

Every iteration contains a call that needs all ranks, or the rank that left. A rank
that leaves the loop by a local decision never calls it again. Such decisions are
early stopping on a local loss, a `break`, a time limit, or an exception that
was caught around the loop. Or the ranks began the loop at different iterations,
because they resumed from different checkpoints. Or the loop ends at a number
that differs between the ranks, such as a setting from different files.

## Example

```python
for batch in loader:
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    if loss.item() < target:  # <- every rank has its own loss
        break
```

## Use instead

```python
for batch in loader:
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    stop = torch.tensor(int(loss.item() < target))
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)  # all ranks stop together
    if stop.item():
        break
```

An exception must end the whole run, not only the loop.

## How hangdoc knows

The stacks show one rank after the loop and another inside it. hangdoc adds the
loop counters of both ranks, the values at which the loop begins and ends, and
the conditions of the loop's `break` and `return` statements with the values of
their variables. Where each role has a loop of its own (a scheduler, workers),
torch's record shows that the call of the rank met another line of the others
before: then the rank is in its next round.

## When it can be wrong

The data did end earlier, but no counter, length or directory showed it.

## References

- torch.distributed.all_reduce:
  https://docs.pytorch.org/docs/stable/distributed.html
- torch.distributed.algorithms.join:
  https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from hangdoc.program import END_OF_DATA, early_exits
from hangdoc.reasoning.causes.loops import (
    Began,
    Ends,
    PossibleExit,
    describe_inner_exits,
    may_have_run_out,
    possible_exits,
)
from hangdoc.reasoning.model.cause import VariableDiffers
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.ranks.counters import count_rounds
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, WithRemedy, about
from hangdoc.reasoning.text import words
from hangdoc.torch_facts.frameworks import LOGGED_METRICS

_SAME_END = (
    "Give `{bound}` the same value on all ranks: find out which argument, file or variable it comes from. If it counts the data "
    "of a rank, all_reduce it with ReduceOp.MIN before the loop."
)
_SAME_SETTING = (
    "If `{bound}` comes from `{setting}`, start all ranks with the same `{setting}`. Otherwise give `{bound}` the same value on "
    "all ranks."
)
_SHOWN = 3
_LET_IT_END = (
    "Let the exception end the rank (raise it again), or make all ranks leave the loop in the same iteration: all_reduce a flag "
    "that tells them of it."
)
_LET_ROUND_END = (
    "Look at its log: it probably failed in its last round, and caught the error. Let such an error end the round on all ranks: "
    "all_reduce a flag that tells them of it."
)
_LEAVE_TOGETHER = " all ranks leave the loop in the same iteration: all_reduce the decision before acting on it."
_LOG_ALIKE = (
    "Log the same metrics on every rank: a `self.log(..., sync_dist=True)` under a condition that differs between ranks is a "
    "collective that some of them leave out."
)
_OR_CAUGHT = (
    " Or look in the log of {} for an exception that was caught: then calls were left out in an iteration. Let such an error end "
    "the rank, or tell all ranks of it."
)
_IF_IT_RAN_OUT = "Nothing shows how much data there was. If it ended, give all ranks as many batches. Otherwise make"
_IF_IT_BEGAN_ELSEWHERE = (
    "Compare `{begin}`, at which the loop begins, between the ranks. If it differs, load the same checkpoint on every rank, or "
    "broadcast the iteration from rank 0. Otherwise make"
)


@about(Began)
def describe_beginnings(run: Run, blockage: Blockage, cause: Began) -> Draft:
    left, inside = cause.left, cause.left.inside
    values = "; ".join(f"{value} on {words.ranks(group)}" for value, group in cause.values.values[:4])
    return Draft(
        confidence=0.9,
        summary=f"{words.ranks(left.short.ranks)} left the loop `{left.loop.header}`; {words.are(inside.ranks)} still inside it, "
        f"waiting in {words.operation(inside.first)}: `{left.loop.begin}`, at which the loop begins, is {values}",
        evidence=sentences.loop_evidence(run, left),
        remedy="Let all ranks begin at the same iteration: load the same checkpoint on every rank, or broadcast the iteration "
        "from rank 0.",
    )


@about(Ends)
def describe_ends(run: Run, blockage: Blockage, cause: Ends) -> Draft:
    left, inside, bound = cause.left, cause.left.inside, cause.left.loop.bound
    values = "; ".join(f"{value} on {words.ranks(group)}" for value, group in cause.values.values[:4])
    return Draft(
        confidence=0.9,
        summary=f"{words.ranks(left.short.ranks)} left the loop `{left.loop.header}`; {words.are(inside.ranks)} still inside it, "
        f"waiting in {words.operation(inside.first)}: `{bound}`, at which the loop ends, is {values}",
        evidence=[*_describe_settings(cause), *sentences.loop_evidence(run, left)],
        remedy=_SAME_END.format(bound=bound),
    )


def _describe_settings(cause: Ends) -> list[Evidence]:
    """The options and variables that differ between the same ranks as the end of the loop."""
    bound = cause.left.loop.bound or ""
    return [
        WithRemedy(
            None,
            "environment" if isinstance(each, VariableDiffers) else "arguments",
            f"`{each.name}` parts the same ranks: {words.values_by_rank(each.values.values)}",
            remedy=_SAME_SETTING.format(setting=each.name, bound=bound),
        )
        for each in cause.settings[:_SHOWN]
    ]


@about(LeftLoop)
def describe(run: Run, blockage: Blockage, kind: LeftLoop) -> Draft:
    short, inside = kind.short.first, kind.inside
    done = count_rounds(short)[0]
    total = short.loop.total if short.loop is not None else None
    known_total = total if done is not None and total is not None and total > done else None
    exits = possible_exits(kind)
    # What ended the loop otherwise explains why it has fewer iterations.
    by_data = all(not each.shown or each.exit.conditions == (END_OF_DATA,) for each in exits)
    handlers = sentences.list_uncounted(kind) if by_data else []
    uncounted = f"not counting those that `{handlers[0]}` ended" if handlers else ""
    rounds = sentences.left_after(kind, uncounted, total=known_total)
    caught = sentences.handler_evidence(kind) if done is None else []
    usual = "Make"
    if may_have_run_out(kind) and not any(each.shown for each in exits):
        begin = kind.loop.begin if not early_exits(kind.loop) else None  # else it ends where its numbers do
        usual = _IF_IT_RAN_OUT if begin is None else _IF_IT_BEGAN_ELSEWHERE.format(begin=begin)
    return Draft(
        confidence=0.8 if known_total is not None else 0.7,
        summary=f"{words.ranks(kind.short.ranks)} left the loop `{kind.loop.header}`{rounds}{_describe_next_round(kind)}; "
        f"{words.are(inside.ranks)} still inside it, waiting in {words.operation(inside.first)}",
        evidence=[
            *_describe_meeting(kind),
            *(_exit(short.rank, each) for each in exits),
            *(Evidence(short.rank, "source", text) for text in describe_inner_exits(kind)),
            *_logged_metrics(kind),
            *(sentences.handler_evidence(kind) if handlers else ()),
            *(Evidence(each.rank, each.probe, each.text) for each in caught),
            *sentences.loop_evidence(run, kind),
        ],
        remedy=f"{usual}{_LEAVE_TOGETHER}{_OR_CAUGHT.format(words.ranks(kind.short.ranks)) if caught else ''}",
    )


def _describe_next_round(kind: LeftLoop) -> str:
    who = kind.short.ranks
    return f" and {words.be(who)} back in {words.operation(kind.short.first)}" if kind.met is not None else ""


def _describe_meeting(kind: LeftLoop) -> list[Evidence]:
    """That the call of the ranks that left the loop is one that all ranks make, and what may have ended the round for them."""
    short, met = kind.short.first, kind.met
    if met is None or met.site is None:
        return []
    called = f"its {words.operation(short)} met the call at {met.site.file}:{met.site.line} before"
    handlers = sentences.handler_evidence(kind) if not early_exits(kind.loop) else []
    return [
        Evidence(short.rank, "recorder", f"{called}: it is in the next round"),
        *(WithRemedy(each.rank, each.probe, each.text, remedy=_LET_ROUND_END) for each in handlers),
    ]


def _logged_metrics(kind: LeftLoop) -> list[Evidence]:
    """That a loop is Lightning's over what was logged: then its rounds are no batches."""
    first = kind.inside.first
    frames = first.thread.frames if first.thread is not None else ()
    around = [frame for frame in frames if kind.loop in frame.loops]
    if not any(function.is_at(frame.file, frame.function) for function in LOGGED_METRICS for frame in around):
        return []
    text = "this loop is Lightning's over the metrics that were logged, and makes a call for each with sync_dist=True"
    return [WithRemedy(first.rank, "source", text, remedy=_LOG_ALIKE)]


def _exit(rank: int, possible: PossibleExit) -> Evidence:
    if possible.shown and possible.exit.statement == "except":
        return WithRemedy(rank, "source", possible.text, remedy=_LET_IT_END)
    return Evidence(rank, "source", possible.text)
