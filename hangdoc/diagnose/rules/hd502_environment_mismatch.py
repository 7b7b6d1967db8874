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

from hangdoc.diagnose import settings, words
from hangdoc.diagnose.model import Run, environment_of
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Environment

CODE = "HD502"
NAME = "environment-mismatch"
EXPLAINS = ("HD201", "HD202", "HD203", "HD401")


def check(run: Run) -> Iterator[Finding]:
    """Each such variable once."""
    living = [
        rank
        for rank in run.ranks.values()
        if rank.process is not None and rank.label != "dead" and isinstance(rank.process.environment, Environment)
    ]
    environments = {rank.rank: environment_of(rank.process) for rank in living if rank.process is not None}
    for name in sorted({name for environment in environments.values() for name in environment}):
        setting = settings.variable(name)
        if setting is None or setting.kind in ("differs", "tuning", "meeting") or settings.inert(name, run.backend):
            continue
        camps = words.by_value(living, {rank: environment.get(name) for rank, environment in environments.items()})
        # A folder that differs by node is common; a default on one of them is not.
        if len(camps) < 2 or (setting.kind == "data" and all(value is not None for value, _ in camps)):
            continue
        yield _finding(run, name, setting, camps)


def _finding(run: Run, name: str, setting: settings.Setting, camps: words.Camps) -> Finding:
    stuck = [rank.rank for rank in run.waiting() if not rank.moving]
    decisive = setting.kind == "collectives"
    alone = bool(stuck) and run.causes <= set(stuck)
    return words.finding(
        CODE,
        NAME,
        severity="error" if decisive and alone else "warning",
        confidence=(0.9 if alone else 0.7) if decisive else 0.4,
        culprits=words.odd_ones(camps),
        victims=stuck,
        summary=f"{name} differs between ranks: {words.said(camps)}; {setting.why}",
        evidence=[
            Evidence(
                rank=group[0],
                probe="environment",
                text=f"{name}={'not set' if value is None else value[:60]} ({words.ranks(group)})",
            )
            for value, group in camps[:8]
        ],
        remedy=f"Set {name} to the same value on all ranks.",
    )
