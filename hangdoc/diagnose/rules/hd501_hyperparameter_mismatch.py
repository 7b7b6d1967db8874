"""Training arguments differ between ranks in a way that changes collectives.

## What it finds

An option of the command line, or a number of that name in the scripts' own variables, has different values on different
ranks, and is known to decide how many collectives a rank calls, which, or how large they are: gradient accumulation,
batch size, number of steps, intervals of evaluation, depth and widths, precision.

## Why it hangs

Ranks that accumulate over different numbers of micro-batches reduce their gradients a different number of times. One that
evaluates or saves at another step waits there while the others train. Different sizes end in a crash, or pair up without
a word.

## Evidence

The values, rank by rank, from command lines and from the variables of the running scripts, with what each decides.

## What to do

Give all nodes one command line, or one file of settings. Check it at the start: all_gather the settings and compare them.

## When it would be wrong

A script may take an option for something else than its name says, and may correct it later. Options that are meant to
differ (ranks, seeds, output folders) or only tune a rank are left out.

## References

- DistributedDataParallel, no_sync: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import disagreements
from hangdoc.diagnose.causes.disagreements import OptionDiffers
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD501"
NAME = "hyperparameter-mismatch"
ABOUT = (OptionDiffers,)

_REMEDY = "Start all nodes with the same arguments."


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for each other, and an argument that differs although it must be the same on all ranks."""
    found = disagreements.options(run)
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
    found = disagreements.options(run)
    if found and not any(isinstance(one.cause, OptionDiffers) for one in run.blockages):
        decisive = found[0].decisive
        yield words.finding(
            CODE,
            NAME,
            severity="warning" if decisive else "info",
            confidence=0.8 if decisive else 0.5,
            culprits=found[0].values.odd,
            victims=(),
            summary=_summary(found),
            evidence=_evidence(found),
            remedy=_REMEDY,
        )


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
