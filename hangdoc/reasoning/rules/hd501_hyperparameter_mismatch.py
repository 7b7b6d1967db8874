"""Arguments that change which collectives the ranks call differ between ranks.

## What it finds

A command-line option that has different values on different ranks. It is known
to decide how many collectives a rank calls, which ones, or their sizes:
gradient accumulation, batch size, number of steps, evaluation interval, model
size, precision.

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

It compares command lines, rank by rank. A built-in table lists what each option
decides. Of a path, only the last part counts. Options that name data, and words
that belong to no option, are an `info`: they change how often collectives are
called, if at all. Where all ranks of a node name the same data, each node may
have a part of it at a place of its own, on purpose.

## When it can be wrong

A script may use an option for something else than its name suggests, or correct
it later. Options that are meant to differ (ranks, seeds, output directories) or
that only tune a rank are not compared, and neither are settings from a file. An
option with the rank's own number in its value (`part-3`) is meant to differ.

## References

- DistributedDataParallel, no_sync:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.model.cause import OptionDiffers
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about, reported_causes


@about(OptionDiffers)
def describe(run: Run, blockage: Blockage, cause: OptionDiffers) -> Draft:
    others = (option for option in _options(run) if option.name != cause.name)
    return sentences.draft_of_settings(
        sentences.ARGUMENTS, [cause, *others], 0.92 if cause.decisive else 0.8, run.waiting
    )


def check(run: Run) -> Iterator[Draft]:
    """One finding for all arguments that differ, if they do not explain a blockage."""
    options = _options(run)
    if options and not reported_causes(run, OptionDiffers):
        decisive = options[0].decisive
        yield sentences.draft_of_settings(
            sentences.ARGUMENTS, options, 0.8 if decisive else 0.5, severity="warning" if decisive else "info"
        )


def _options(run: Run) -> list[OptionDiffers]:
    return [setting for setting in run.differing if isinstance(setting, OptionDiffers)]
