"""All ranks made the same call, and their cards do not finish it.

## What it finds

A collective of NCCL that every rank of its group has made, with the same
operation and amount of data. For the whole observation, no rank has made or
finished a call.

## Why it hangs

The program is right: no rank is missing. The fault is below it. A card
still executes a kernel that it got before, a kernel never ends, a link or a
network interface loses data, or NCCL has a defect. torch's watchdog ends the
run at the timeout of the group, and names every rank.

## Example

```python
endless_kernel(x)  # <- on one rank; the launch returns at once
dist.all_reduce(x)  # made by all ranks, finished by none
print(x.sum().item())
```

## Use instead

```python
endless_kernel(x)
torch.cuda.synchronize()  # look at the rank that does not come out
dist.all_reduce(x)
```

Compare the cards (`hangdoc top`, view cards): one that works hard while the
others wait has not come to the collective. Look at the kernel log and the
network of the hosts. Run NCCL's tests on the same nodes. `NCCL_DEBUG=INFO`
shows which transport the next run uses.

## How hangdoc knows

It reads torch's flight recorder from the memory of each rank, twice, and
compares the calls by their numbers.

## When it can be wrong

A large transfer over a slow link takes long and looks the same for a while, and
so does a long kernel before the collective. That a call has finished is what
torch's watchdog thread has noticed: if that thread does not run, the record
lags behind. A group that is not in the record (CUDA graphs, a library that
calls NCCL itself) may be the one that hangs.

## References

- Flight recorder:
  https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
- NCCL, troubleshooting:
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from hangdoc.reasoning.model.kinds import LaunchedNotFinished
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about
from hangdoc.reasoning.text import call_words, words

_TESTS = "the kernel logs and the network of the hosts, and run NCCL's tests on the same nodes."
_COMPARE = f"Compare the cards: one that works hard has not come to the collective. If none does, check {_TESTS}"


def _what(run: Run, blockage: Blockage, kind: LaunchedNotFinished) -> str:
    if kind.pair is not None:
        rank, peer = kind.pair
        matching = "receive" if kind.call.op == "send" else "send"
        return f"rank {rank} has launched its {kind.call.op}, and rank {peer} the {matching}, and their cards do not finish them"
    group = run.ledger.group(kind.group, min(blockage.victims or (0,)))
    where = f" of {call_words.group_name(group)}" if group is not None else ""
    call = call_words.name_call(kind.call)
    return f"all ranks have made {call}, number {kind.number}{where}, and their cards do not finish it"


@about(LaunchedNotFinished)
def describe_blockage(run: Run, blockage: Blockage, kind: LaunchedNotFinished) -> Draft:
    return Draft(
        confidence=0.85,
        summary=_what(run, blockage, kind),
        evidence=[*words.class_evidence(blockage.awaited), *words.standstill(run)],
        remedy=f"Check {_TESTS}" if kind.cards_wait else _COMPARE,
        may_end=True,
    )
