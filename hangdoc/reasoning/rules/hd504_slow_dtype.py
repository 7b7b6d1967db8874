"""Ranks train in bf16 or fp16 on a CPU that has no instructions for it.

## What it finds

Ranks that train on the CPU in bfloat16 or float16, on a processor without
instructions for that dtype.

## Why it hangs

It does not hang, but it looks like a hang. The processor emulates every
operation in float32 and converts before and after it, so a step may take many
times as long. Some scripts choose such a dtype when they see a GPU, even if the
run does not use it.

## Example

```python
dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
model = model.to(dtype)  # <- stays on the CPU
```

## Use instead

```python
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
model = model.to(device, dtype)
```

Or run on processors with avx512_bf16 or amx_bf16.

## How hangdoc knows

It looks for use of the dtype: the parameters of a model, an active autocast, or
the tensors of a torch layer. A variable or an option that only names the dtype
is not enough. Then it reads the CPU flags, whether a GPU is present, and
whether the ranks use it.

## When it can be wrong

The model in that dtype is only a saved copy, or it is only evaluated now and
then.

## References

- torch.amp, CPU: https://docs.pytorch.org/docs/stable/amp.html
- oneDNN data types:
  https://uxlfoundation.github.io/oneDNN/dev_guide_data_types.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import precision
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import words
from hangdoc.snapshot import Machine, Runtime

_NATIVE = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp")}


def check(run: Run) -> Iterator[Draft]:
    """One finding for all ranks of a host whose CPU lacks the instructions."""
    for host in run.hosts:
        if not isinstance(host.machine, Machine) or not host.machine.cpu_flags:
            continue
        by_dtype: dict[str, dict[int, str]] = {}
        for rank in run.on(host.name):
            if rank.label == "computing" and not _on_gpu(rank) and (seen := precision.find_half_precision(rank)):
                by_dtype.setdefault(seen[0], {})[rank.rank] = seen[1]
        for dtype, ranks in sorted(by_dtype.items()):
            if not set(_NATIVE[dtype]) & set(host.machine.cpu_flags):
                yield _draft(host.machine, dtype, ranks)


def _on_gpu(rank: Rank) -> bool:
    return rank.process is not None and isinstance(rank.process.runtime, Runtime) and rank.process.runtime.gpu


def _draft(machine: Machine, dtype: str, seen: dict[int, str]) -> Draft:
    unused = f"; {machine.gpus} GPU(s) are present but unused, so the script may have chosen {dtype} for them"
    return Draft(
        confidence=0.7,
        culprits=seen,
        summary=f"{words.do(seen, 'trains', 'train')} in {dtype} on a CPU without native support for it "
        f"({machine.cpu_model or 'unknown model'}){unused if machine.gpus else ''}",
        evidence=[
            *(Evidence(rank, "stacks", text) for rank, text in list(seen.items())[:4]),
            Evidence(None, "machine", f"CPU flags: {', '.join(machine.cpu_flags)}"),
        ],
        remedy="Train in float32 on this machine, or "
        + ("on the GPU." if machine.gpus else "on a machine with native support for it."),
    )
