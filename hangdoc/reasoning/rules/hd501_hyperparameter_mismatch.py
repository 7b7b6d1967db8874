"""Arguments that change which collectives the ranks call differ between ranks.

## What it finds

A command-line option, or a number of that name in the script's variables, has
different values on different ranks. It is known to decide how many collectives
a rank calls, which ones, or their sizes: gradient accumulation, batch size,
number of steps, evaluation interval, model size, precision.

## Why it hangs

Ranks that accumulate different numbers of micro-batches reduce their gradients
a different number of times. A rank that evaluates or saves at another step
waits there while the others train. Different tensor sizes end in a crash, or
pair up without an error.

## Example

```sh
torchrun ... --node-rank 0 train.py --grad-accum 2
torchrun ... --node-rank 1 train.py --grad-accum 4   # <-
```

## Use instead

```python
settings = [None] * dist.get_world_size()
dist.all_gather_object(settings, vars(args))
if any(other != settings[0] for other in settings):
    raise ValueError(f"the ranks have different arguments: {settings}")
```

And launch all nodes with the same command.

## How hangdoc knows

It compares command lines, and the variables of the running scripts, rank by
rank. A built-in table lists what each option decides.

## When it can be wrong

A script may use an option for something else than its name suggests, or correct
it later. Options that are meant to differ (ranks, seeds, output directories) or
that only tune a rank are not compared.

## References

- DistributedDataParallel, no_sync:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes.disagreements import OptionDiffers
from hangdoc.reasoning.model import Run

CODE = "HD501"
NAME = "hyperparameter-mismatch"
ABOUT = (OptionDiffers,)

_REMEDY = "Start all nodes with the same arguments."


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for each other, and an argument that differs although it must be the same on all ranks."""
    found = _found(run)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.92,
        summary=_summary(found),
        evidence=[*_evidence(found), *words.class_evidence(run.waiting)],
        remedy=_REMEDY,
    )


def check(run: Run) -> Iterator[Finding]:
    """One finding for all arguments that differ, if they do not explain a blockage."""
    found = _found(run)
    if found and not any(isinstance(one.cause, OptionDiffers) for one in run.blockages):
        decisive = found[0].decisive
        yield words.finding(
            CODE,
            NAME,
            severity="warning" if decisive else "info",
            confidence=0.8 if decisive else 0.5,
            culprits=found[0].values.odd,
            summary=_summary(found),
            evidence=_evidence(found),
            remedy=_REMEDY,
        )


def _found(run: Run) -> list[OptionDiffers]:
    return [one for one in run.differing if isinstance(one, OptionDiffers)]


def _summary(found: list[OptionDiffers]) -> str:
    first, *others = found
    names = ", ".join(f"`{other.name}`" for other in others[:4])
    more = f" ({names} {'differs' if len(others) == 1 else 'differ'} too)" if others else ""
    return f"`{first.name}` differs between ranks: {words.values_by_rank(first.values)}; it {first.why}{more}"


def _evidence(found: list[OptionDiffers]) -> list[Evidence]:
    return [
        Evidence(rank=group[0], probe="arguments", text=f"{one.name}={value or '(not given)'}{words.also(group)}")
        for one in found[:4]
        for value, group in one.values.values[:4]
    ]
