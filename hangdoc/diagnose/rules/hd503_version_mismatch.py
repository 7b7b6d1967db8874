"""torch (or Python) versions differ between ranks.

## What it finds

Ranks of one run that have another version of torch mapped, or run another Python.

## Why it hangs

Ranks of different torch versions may call other collectives at the same place (a check more, another order of buckets,
another rendezvous key), serialise objects in another way, or refuse each other. Sometimes it works for days.

## Evidence

The version beside the libtorch that each rank has mapped, and the Python whose library it runs; read from files, nothing
is imported.

## What to do

Install the same versions on all nodes: one image, one lock file. Compare `python -c "import torch; print(torch.__version__)"`.

## When it would be wrong

Where the builds differ in their local part only (`+cpu`, `+cu128`) and are otherwise the same; mixing these is unusual,
too.

## References

- PyTorch releases and what they promise: https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import disagreements
from hangdoc.diagnose.causes.disagreements import VersionDiffers
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD503"
NAME = "version-mismatch"
ABOUT = (VersionDiffers,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks of different versions that wait for each other."""
    cause = blockage.cause
    assert isinstance(cause, VersionDiffers)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.8,
        summary=_summary(cause),
        evidence=[*_evidence(cause), *words.class_evidence(run.waiting)],
        remedy=_remedy(cause),
    )


def check(run: Run) -> Iterator[Finding]:
    """One finding each for torch and for Python, where no blockage comes of it."""
    explained = {one.cause.name for one in run.blockages if isinstance(one.cause, VersionDiffers)}
    for found in disagreements.versions(run):
        if found.name not in explained:
            yield words.finding(
                CODE,
                NAME,
                severity="warning",
                confidence=0.6,
                culprits=found.values.odd,
                victims=(),
                summary=_summary(found),
                evidence=_evidence(found),
                remedy=_remedy(found),
            )


def _summary(found: VersionDiffers) -> str:
    return f"{found.name} differs between ranks: {words.said(found.values)}"


def _remedy(found: VersionDiffers) -> str:
    return f"Install the same {found.name} on all nodes."


def _evidence(found: VersionDiffers) -> list[Evidence]:
    return [
        Evidence(rank=group[0], probe="machine", text=f"{found.name} {value} ({words.ranks(group)})")
        for value, group in found.values.values[:8]
    ]
