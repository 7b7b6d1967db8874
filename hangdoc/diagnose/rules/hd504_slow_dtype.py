"""bf16 or fp16 on a CPU without the instructions for it.

## What it finds

Ranks that train on the CPU in bfloat16 or float16, on a processor that has no instructions for that type.

## Why it hangs

It does not, but it looks like it: the processor emulates every operation in float32, with conversions before and behind,
and a step may take many times as long. Scripts choose such a type by themselves where they see a GPU, even where the run
does not use it.

## Evidence

Use of the type: the parameters of a model that the script holds, an autocast that was entered or whose `with` block the
rank is in, or the tensors that one of torch's layers works on. A variable or an option that only names the type is not
enough. Then the processor's flags; whether a GPU is present, and whether the ranks have it open.

## What to do

Train in float32 on this machine (`--dtype float32`, `mixed_precision=no`), or on processors with avx512_bf16 or
amx_bf16, or on the GPU.

## When it would be wrong

Where the model in that type is a saved copy, or one that is only evaluated now and then.

## References

- torch.amp, CPU: https://docs.pytorch.org/docs/stable/amp.html
- oneDNN data types: https://uxlfoundation.github.io/oneDNN/dev_guide_data_types.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.ranks import precision
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Machine, Runtime

CODE = "HD504"
NAME = "slow-dtype"

_NATIVE = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp")}


def check(run: Run) -> Iterator[Finding]:
    """One finding for all ranks of a host whose CPU lacks the instructions."""
    for host in run.hosts:
        if not isinstance(host.machine, Machine) or not host.machine.cpu_flags:
            continue
        found: dict[str, list[tuple[Rank, str]]] = {}
        for rank in run.on(host.name):
            if rank.label == "computing" and not _on_gpu(rank) and (seen := precision.half(rank)):
                found.setdefault(seen[0], []).append((rank, seen[1]))
        for dtype, ranks in sorted(found.items()):
            if not set(_NATIVE[dtype]) & set(host.machine.cpu_flags):
                yield _finding(host.machine, dtype, ranks)


def _on_gpu(rank: Rank) -> bool:
    return rank.process is not None and isinstance(rank.process.runtime, Runtime) and rank.process.runtime.gpu


def _finding(machine: Machine, dtype: str, ranks: list[tuple[Rank, str]]) -> Finding:
    who = [rank.rank for rank, _ in ranks]
    unused = (
        f"; {machine.gpus} GPU(s) are present but unused, so the script may have chosen {dtype} for them"
        if machine.gpus
        else ""
    )
    return words.finding(
        CODE,
        NAME,
        severity="warning",
        confidence=0.7,
        culprits=who,
        victims=(),
        summary=f"{words.ranks(who)} {words.verb(who, 'trains', 'train')} in {dtype} on a CPU without native support for it "
        f"({machine.cpu_model or 'unknown model'}){unused}",
        evidence=[
            *(Evidence(rank=rank.rank, probe="stacks", text=text) for rank, text in ranks[:4]),
            Evidence(rank=None, probe="machine", text=f"CPU flags: {', '.join(machine.cpu_flags)}"),
        ],
        remedy="Train in float32 on this machine, or use a CPU with native support, or the GPU.",
    )
