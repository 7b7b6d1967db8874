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

from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes import disagreements
from hangdoc.diagnose.causes.disagreements import VersionDiffers
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.rules import differs
from hangdoc.diagnosis import Finding

CODE = "HD503"
NAME = "version-mismatch"
ABOUT = (VersionDiffers,)

_WORDING = differs.Wording(
    (CODE, NAME),
    probe="machine",
    subject="the {name} version",
    evidence="{name} {value}",
    missing="{name} not found",
    remedy="Install the same {name} version on all nodes.",
    as_cause=0.8,
    decisive=0.6,
    other=0.6,
)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for each other and run different versions."""
    return differs.say(_WORDING, run, blockage)


def check(run: Run) -> Iterator[Finding]:
    """One finding each for torch and Python, if it does not explain a blockage."""
    return differs.check(_WORDING, run, disagreements.versions(run))
