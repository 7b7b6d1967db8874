"""The versions of torch or Python differ between ranks.

## What it finds

Ranks of one run that use a different version of torch or Python.

## Why it hangs

Different torch versions may call different collectives at the same place (an
extra check, another order of buckets, another rendezvous key), serialise
objects differently, or refuse to connect. Sometimes the run works for days.

## Example

```sh
pip install torch   # <- gives 2.12 on one node, 2.13 on another
```

## Use instead

```sh
pip install torch==2.13.0   # or one container image for all nodes
python -c 'import torch; print(torch.__version__)'   # compare on every node
```

## How hangdoc knows

It reads the version file beside the libtorch that each rank has mapped, and the
Python library that it runs. It imports nothing.

## When it can be wrong

The builds differ only in their local part (`+cpu`, `+cu128`) and are otherwise
equal. Even such a mix is unusual.

## References

- PyTorch releases and what they promise:
  https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from collections.abc import Iterator

from hangdoc.reasoning.model.cause import VersionDiffers
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about

_WORDING = sentences.Wording(
    probe="machine",
    subject="the {name} version",
    evidence="{name} {value}",
    missing="{name} not found",
    remedy="Install the same {name} version on all nodes.",
)


@about(VersionDiffers)
def describe(run: Run, blockage: Blockage, cause: VersionDiffers) -> Draft:
    return sentences.draft_of_settings(_WORDING, [cause], 0.8, run.waiting)


def check(run: Run) -> Iterator[Draft]:
    """One finding each for torch and Python, if it does not explain a blockage."""
    for setting in sentences.unexplained(run, VersionDiffers):
        yield sentences.draft_of_settings(_WORDING, [setting], 0.6)
