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
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Runtime

CODE = "HD503"
NAME = "version-mismatch"
EXPLAINS = ("HD201", "HD401")


def check(run: Run) -> Iterator[Finding]:
    """One finding each for torch and for Python."""
    ranks = [r for r in run.ranks.values() if r.process is not None and isinstance(r.process.runtime, Runtime)]
    stuck = [rank.rank for rank in run.waiting() if not rank.moving]
    for name in ("torch", "python"):
        values = {r.rank: getattr(r.process.runtime, name) for r in ranks if r.process is not None}
        known = [rank for rank in ranks if values[rank.rank] is not None]
        camps = words.by_value(known, values)
        if len(camps) < 2:
            continue
        alone = bool(stuck) and run.causes <= set(stuck)
        yield words.finding(
            CODE,
            NAME,
            severity="error" if alone and name == "torch" else "warning",
            confidence=0.8 if alone and name == "torch" else 0.6,
            culprits=words.odd_ones(camps),
            victims=stuck,
            summary=f"{name} differs between ranks: {words.said(camps)}",
            evidence=[
                Evidence(rank=group[0], probe="machine", text=f"{name} {value} ({words.ranks(group)})")
                for value, group in camps[:8]
            ],
            remedy=f"Install the same {name} on all nodes.",
        )
