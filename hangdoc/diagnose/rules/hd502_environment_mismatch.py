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

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import disagreements
from hangdoc.diagnose.causes.disagreements import VariableDiffers
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD502"
NAME = "environment-mismatch"
ABOUT = (VariableDiffers,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for each other, with a variable that must agree and does not."""
    cause = blockage.cause
    assert isinstance(cause, VariableDiffers)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9,
        summary=_summary(cause),
        evidence=[*_evidence(cause), *words.class_evidence(run.waiting)],
        remedy=_remedy(cause),
    )


def check(run: Run) -> Iterator[Finding]:
    """Each other variable that differs."""
    explained = {one.cause.name for one in run.blockages if isinstance(one.cause, VariableDiffers)}
    for found in disagreements.variables(run):
        if found.name not in explained:
            yield words.finding(
                CODE,
                NAME,
                severity="warning",
                confidence=0.7 if found.decisive else 0.4,
                culprits=found.values.odd,
                victims=(),
                summary=_summary(found),
                evidence=_evidence(found),
                remedy=_remedy(found),
            )


def _summary(found: VariableDiffers) -> str:
    return f"{found.name} differs between ranks: {words.said(found.values)}; {found.why}"


def _remedy(found: VariableDiffers) -> str:
    return f"Set {found.name} to the same value on all ranks."


def _evidence(found: VariableDiffers) -> list[Evidence]:
    return [
        Evidence(
            rank=group[0],
            probe="environment",
            text=f"{found.name}={'not set' if value is None else value[:60]} ({words.ranks(group)})",
        )
        for value, group in found.values.values[:8]
    ]
