"""An environment variable that must agree between ranks does not.

## What it finds

Variables that change what ranks say to each other, with different values on different ranks of one run.

## Why it hangs

With `TORCH_DISTRIBUTED_DEBUG=DETAIL` on one rank only, that rank checks every collective with a barrier the others never
call. A different algorithm, protocol or dtype on one rank makes it send what the others don't expect.

## Evidence

The values of the variable, by rank, as the ranks run with them.

## What to do

Set the variable on all nodes or on none.

## When it would be wrong

Where a site sets a variable per node on purpose and knows why.

## References

- torch.distributed, debugging: https://docs.pytorch.org/docs/stable/distributed.html
- NCCL environment variables: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

import re
from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.jobs import environment_of
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD502"
NAME = "environment-mismatch"
EXPLAINS: tuple[str, ...] = ()

# Decides by itself whether ranks can meet.
_DECISIVE = re.compile(
    r"^(TORCH_DISTRIBUTED_DEBUG|WORLD_SIZE|NCCL_(ALGO|PROTO|COMM_ID|COLLNET_ENABLE|NVLS_ENABLE)|GLOO_DEVICE_TRANSPORT)$"
)
# Should agree; alone it only makes numbers differ.
_SHOULD = re.compile(
    r"^(NCCL_(IB_DISABLE|P2P_DISABLE|SHM_DISABLE|NET|NET_PLUGIN|BUFFSIZE|MIN_NCHANNELS|MAX_NCHANNELS)"
    r"|TORCH_NCCL_\w+|PYTHONHASHSEED|CUBLAS_WORKSPACE_CONFIG|ACCELERATE_MIXED_PRECISION|FSDP_\w+|\w+_DTYPE|NVTE_\w+)$"
)


def check(run: Run) -> Iterator[Finding]:
    """Each such variable once."""
    values: dict[str, dict[str | None, list[Rank]]] = {}
    living = [rank for rank in run.ranks.values() if rank.process is not None and rank.label != "dead"]
    environments = {rank.rank: environment_of(rank.process) for rank in living if rank.process is not None}
    names = {n for e in environments.values() for n in e if _DECISIVE.match(n) or _SHOULD.match(n)}
    for name in names:
        for rank in living:
            values.setdefault(name, {}).setdefault(environments[rank.rank].get(name), []).append(rank)
    for name, by_value in sorted(values.items()):
        if len(by_value) > 1:
            yield _finding(run, name, by_value)


def _finding(run: Run, name: str, by_value: dict[str | None, list[Rank]]) -> Finding:
    ordered = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[1][0].rank))
    tied = len(ordered[0][1]) == len(ordered[1][1])
    odd = [rank.rank for _, group in ordered[0 if tied else 1 :] for rank in group]
    stuck = [rank.rank for rank in run.waiting() if not rank.moving]
    decisive = bool(_DECISIVE.match(name))
    said = "; ".join(f"{_value(value)} on {words.ranks(r.rank for r in group)}" for value, group in ordered[:4])
    return words.finding(
        CODE,
        NAME,
        severity="error" if decisive and stuck and not run.causes - set(stuck) else "warning",
        confidence=0.7 if decisive else 0.4,
        culprits=odd,
        victims=stuck,
        summary=f"{name} differs between ranks: {said}",
        evidence=[
            Evidence(
                rank=group[0].rank,
                probe="environment",
                text=f"{name}={_value(value)} ({words.ranks(r.rank for r in group)})",
            )
            for value, group in ordered[:8]
        ],
        remedy=f"Set {name} to the same value on all ranks.",
    )


def _value(value: str | None) -> str:
    return "not set" if value is None else value[:60]
