"""A rank left the loop before the others, and its data does not explain why.

## What it finds

A rank has left a loop while other ranks are still inside it and wait for that
rank in a collective. Nothing shows that its data ended earlier.

## Why it hangs

Every iteration contains a collective that all ranks must call. A rank that
leaves the loop by a local decision never calls it again. Such decisions are
early stopping on a local loss, a `break`, a time limit, or an exception that
was caught around the loop.

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
loop counters of both ranks, and the conditions of the loop's `break` and
`return` statements with the values of their variables.

## When it can be wrong

The data did end earlier, but no counter, length or directory showed it.

## References

- torch.distributed.all_reduce:
  https://docs.pytorch.org/docs/stable/distributed.html
- torch.distributed.algorithms.join:
  https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes import exits
from hangdoc.reasoning.kinds import LeftLoop
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.ranks.counters import batches
from hangdoc.reasoning.rules import left_loop
from hangdoc.reasoning.rules.draft import Draft, about


@about(LeftLoop)
def say(run: Run, blockage: Blockage, kind: LeftLoop) -> Draft:
    short, inside = kind.short.first, kind.inside
    done = batches(short)[0]
    total = short.loop.total if short.loop is not None else None
    of = f"of {total} " if done is not None and total is not None and total > done else ""
    return Draft(
        confidence=0.8 if of else 0.7,
        summary=f"{words.ranks(kind.short.ranks)} left the loop `{kind.loop.header}`{left_loop.after(kind, f'{of}batches')}; "
        f"{words.are(inside.ranks)} still inside it, waiting in {words.operation(inside.first)}",
        evidence=[*exits.of(kind), *left_loop.evidence(run, kind)],
        remedy="Make all ranks leave the loop in the same iteration: all_reduce the decision before acting on it.",
        commands=words.look_again(short),
    )
