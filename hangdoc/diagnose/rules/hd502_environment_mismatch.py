"""An environment variable that must agree between ranks does not.

## What it finds

Variables that change what ranks say to each other, or where they find their data, with different values on different
ranks of one run. One that is set on some ranks only counts as differing: the others go by a default.

## Why it hangs

With `TORCH_DISTRIBUTED_DEBUG=DETAIL` on one rank only, that rank checks every collective with another that the others
never call. A different algorithm, protocol or transport on one rank makes it send what the others don't expect.

## Evidence

The values of the variable, by rank, as the ranks run with them: those they started with, and what the process itself
changed since.

## What to do

Set the variable on all nodes or on none.

## When it would be wrong

Where a site sets a variable per node on purpose and knows why. Variables that have no effect under the run's backend
(NCCL's under Gloo) and those that only tune speed or logs are left out.

## References

- torch.distributed, debugging: https://docs.pytorch.org/docs/stable/distributed.html
- NCCL environment variables: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from collections.abc import Iterator

from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import disagreements
from hangdoc.diagnose.causes.disagreements import VariableDiffers
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import differs
from hangdoc.diagnosis import Finding

CODE = "HD502"
NAME = "environment-mismatch"
ABOUT = (VariableDiffers,)

_WORDING = differs.Wording(
    (CODE, NAME),
    probe="environment",
    subject="{name}",
    evidence="{name}={value}",
    missing="{name} is not set",
    remedy="Set {name} to the same value on all ranks.",
    as_cause=0.9,
    decisive=0.7,
    other=0.4,
)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for each other, and a variable that differs although it must be the same on all ranks."""
    return differs.say(_WORDING, run, blockage)


def check(run: Run) -> Iterator[Finding]:
    """Every other variable that differs."""
    return differs.check(_WORDING, run, disagreements.variables(run))
