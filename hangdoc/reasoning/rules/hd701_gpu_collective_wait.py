"""A GPU rank busy-waits in the driver, and no record shows for which call.

## What it finds

Ranks with NCCL threads whose training thread is in a GPU synchronization in
both stacks, at full CPU, while none of their counters changes. torch has not
recorded their calls: it is 2.10 or older without `TORCH_FR_BUFFER_SIZE`, or a
library calls NCCL itself. Ranks in a call of a Gloo group are not included.

## Why it hangs

An NCCL collective is a kernel on the GPU. The host continues until it needs a
result (`.item()`, `.cpu()`, a synchronize). Then it waits for the stream by
polling in the driver, which uses 100% of a core. The rank looks busy, but it
waits for the collective, and the collective waits for a rank that has not
called it.

## Example

```python
loss.backward()
if rank != skipped:
    dist.all_reduce(loss)  # <- one rank does not call it
print(loss.item())  # the other ranks busy-wait here
```

## Use instead

```python
loss.backward()
dist.all_reduce(loss)  # every rank calls it
print(loss.item())
```

Look at the rank that does not busy-wait: the others wait for it. If all ranks
do, they are in different collectives: start the run with
`TORCH_FR_BUFFER_SIZE=2000`, or use torch 2.11 or later, which records the calls
of each rank. Then hangdoc names the call and the rank.

## How hangdoc knows

It reads the NCCL threads of the process, the native frames in libcuda, the same
Python line in both stacks, and counters that do not change.

## When it can be wrong

A long kernel of the rank itself looks the same from the host, so this finding
is always an `info`. The error is the finding about the rank that is elsewhere. If
all ranks busy-wait, run hangdoc again after a minute and compare the lines.

## References

- ProcessGroupNCCL environment variables:
  https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
- Stacks of such ranks, innermost in libcuda below cudaStreamSynchronize or
  `_local_scalar_dense_cuda`: https://github.com/pytorch/pytorch/issues/95944,
  https://github.com/rwth-i6/returnn/issues/1811
- Flight recorder:
  https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from collections.abc import Iterable, Iterator

from hangdoc.reasoning.ledger.nccl_counts import find_uneven
from hangdoc.reasoning.model.kinds import Spinning
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import next_steps, words


@about(Spinning)
def describe(run: Run, blockage: Blockage, kind: Spinning) -> Draft:
    return _draft(run)


def check(run: Run) -> Iterator[Draft]:
    """Ranks that busy-wait in the GPU driver while other ranks are elsewhere."""
    if any(map(_is_unrecorded, run.waiting)) and not any(isinstance(b.kind, Spinning) for b in run.blockages):
        awaited = [each for blockage in run.blockages for each in blockage.awaited]
        yield _draft(run, set(numbers_of(each for each in awaited if not each.first.waits)))


def _is_unrecorded(waiting: Class) -> bool:
    """Whether ranks spin in the driver, and neither torch nor NCCL shows for which call."""
    return waiting.first.spins and waiting.first.wait is not None and waiting.first.wait.number is None


def _ranks_behind(run: Run, ranks: set[int]) -> tuple[int, ...]:
    """The ranks that have launched less than others of a communicator, by NCCL's own counts."""
    processes = {number: run.ranks[number].process for number in ranks}
    uneven = find_uneven({number: process for number, process in processes.items() if process is not None})
    return tuple(sorted({rank for launches in uneven for rank in launches.behind}))


def _draft(run: Run, elsewhere: Iterable[int] = ()) -> Draft:
    spinning = list(filter(_is_unrecorded, run.waiting))
    who = set(numbers_of(spinning))
    behind = _ranks_behind(run, who)
    alone = f"and {words.verb(who, 'makes', 'make')} no progress"
    until = f"until {words.do(elsewhere, 'joins', 'join')}" if elsewhere else alone
    cpu = min(each.first.cpu_percent or 0 for each in spinning)
    return Draft(
        severity="info",  # the host cannot tell a collective from a long kernel; the finding about the other ranks is the error
        confidence=0.7,
        culprits=elsewhere or behind,
        victims=who - set(behind),
        summary=f"{words.do(who, 'busy-waits', 'busy-wait')} in the GPU driver ({cpu:.0f}% CPU) {until}",
        evidence=[Evidence(each.first.rank, "stacks", _spins(each)) for each in spinning[:4]],
        remedy="Check the ranks that do not busy-wait. If all do, start the next run with TORCH_FR_BUFFER_SIZE=2000.",
        commands=next_steps.look_again(spinning[0].first),
    )


def _spins(waiting: Class) -> str:
    rank = waiting.first
    return f"{rank.why} {words.place(rank)}; {rank.cpu_percent or 0:.0f}% CPU{words.also(waiting.ranks)}"
