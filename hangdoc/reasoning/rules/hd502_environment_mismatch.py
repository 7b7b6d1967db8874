"""An environment variable that must be the same on all ranks differs.

## What it finds

Variables that change which collectives the ranks call, or where they find their
data, with different values on different ranks of one run. A variable that is
set on some ranks only also differs, because the other ranks use a default.

## Why it hangs

With `TORCH_DISTRIBUTED_DEBUG=DETAIL` on one rank only, that rank checks every
collective with an extra one that the others never call. A different algorithm,
protocol or transport on one rank sends what the other ranks do not expect.

## Example

```sh
export TORCH_DISTRIBUTED_DEBUG=DETAIL   # <- in the shell of one node only
torchrun --nnodes 2 --node-rank 0 train.py
```

## Use instead

```sh
#!/bin/bash
# One job script for all nodes sets the variable everywhere.
export TORCH_DISTRIBUTED_DEBUG=DETAIL
srun bash -c 'torchrun --nnodes 2 --node-rank $SLURM_NODEID train.py'
```

## How hangdoc knows

It reads the environment that each rank started with, and what the process has
changed since.

## When it can be wrong

A site sets a variable per node on purpose. Variables that have no effect under
the backend of the run (NCCL's under Gloo), and those that only tune speed or
logs, are not compared.

## References

- torch.distributed, debugging:
  https://docs.pytorch.org/docs/stable/distributed.html
- NCCL environment variables:
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.model.cause import VariableDiffers
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about

_WORDING = sentences.Wording(
    probe="environment",
    subject="{name}",
    evidence="{name}={value}",
    missing="{name} is not set",
    remedy="Set {name} to the same value on all ranks.",
)


@about(VariableDiffers)
def describe(run: Run, blockage: Blockage, cause: VariableDiffers) -> Draft:
    return sentences.draft_of_settings(_WORDING, [cause], 0.9, run.waiting)


def check(run: Run) -> Iterator[Draft]:
    """Every other variable that differs."""
    for setting in sentences.unexplained(run, VariableDiffers):
        yield sentences.draft_of_settings(_WORDING, [setting], 0.7 if setting.decisive else 0.4)
