"""A link between the GPUs of the run is down, or has errors.

## What it finds

An InfiniBand or RoCE port that a rank uses and that is down, or whose error
counters grow. A card with fewer active NVLinks than the others of its host. A
fatal error of an NVSwitch since the ranks began.

## Why it hangs

NCCL sends over this link. While it is down, or repeats what was lost, the
collective of all ranks waits. Over InfiniBand, NCCL reports an error after its
retries (`NCCL_IB_TIMEOUT`, `NCCL_IB_RETRY_CNT`).

## Example

```sh
cat /sys/class/infiniband/mlx5_3/ports/1/state
# 1: DOWN   # <-
```

## Use instead

```sh
export NCCL_IB_HCA=mlx5_0,mlx5_1   # those that work
torchrun --nnodes 2 train.py
```

## How hangdoc knows

It reads state and counters in /sys/class/infiniband at both ends of the
observation, and which ranks have the device of a port open. NVML counts the
active NVLinks of each card. The kernel log has the errors of NVSwitches (SXid).
The finding is an error only if the port of a waiting rank is down, or an
NVSwitch has failed while ranks wait.

## When it can be wrong

An observation of a second misses errors that occur every few seconds: use
`--window 10`. A rank may have a device open and not send over it. NVLinks may be
inactive by design where cards of one model are connected differently.

This rule was developed without such links. The counters come from the
documentation below.

## References

- Counters of InfiniBand ports:
  https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
- NCCL environment variables:
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
- Errors of NVSwitches:
  https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from collections.abc import Iterator

from hangdoc.reasoning.causes.hardware import LinkFault, find_link_faults
from hangdoc.reasoning.model.rank import numbers_of
from hangdoc.reasoning.rules.draft import Draft, Run
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import command


def check(run: Run) -> Iterator[Draft]:
    """One finding for each fault of a link that ranks use."""
    waiting, several = set(numbers_of(run.waiting)), len(run.hosts) > 1
    for fault in find_link_faults(run):
        yield Draft(
            severity=fault.severity,
            confidence=fault.confidence,
            culprits=fault.ranks,
            victims=waiting if fault.severity == "error" else (),
            summary=_summary(fault),
            evidence=fault.evidence,
            remedy="Have the link checked (cable, port, switch). Until then, run on other hosts"
            + (" or without this device (NCCL_IB_HCA)." if fault.is_port else "."),
            commands=[
                command(
                    *(("ibstat",) if fault.is_port else ("nvidia-smi", "nvlink", "--status")),
                    host=fault.host.name if several else "",
                )
            ],
        )


def _summary(fault: LinkFault) -> str:
    users = f"; {words.do(fault.ranks, 'uses', 'use')} it" if fault.ranks else ""
    return f"{fault.summary}{users}"
