"""A rank shows the sign of a known defect of NCCL or torch.

## What it finds

Ranks that make no progress and show what a public report describes: a library
in a version with the defect, on the architecture that has it, and a frame or a
state of NCCL that belongs to it.

## Why it hangs

| library | versions | sign | what goes wrong |
| --- | --- | --- | --- |
| NCCL | 2.28.9 to 2.29.2, aarch64 | in `ncclLocalOpAppend` | free slots of the proxy get lost |
| NCCL | before 2.28.9 | in `ncclLocalOpAppend` | the proxy sees operations in the wrong order |
| NCCL | all | destroys a communicator that CUDA graphs use | it waits for the end of the graphs |
| NCCL | 2.29.7 to 2.30.4 | several nodes, PXN | a connection that is made late waits for a rank that does not take part |
| torch | before 2.6 | Megatron's `combined_1f1b.py` | overlapped all-to-all |
| torch, NCCL | all | alone in `destroy_process_group` | a `finally` hides the exception of the rank |

## Example

```python
try:
    train()
finally:
    dist.destroy_process_group()  # <- waits for the other ranks
```

## Use instead

```python
try:
    train()
except BaseException:
    traceback.print_exc()
    raise  # the process ends, and the launcher ends the others
dist.destroy_process_group()
```

For a defect of a library, install the version that the finding names. The
version that counts is that of the library that is loaded
(`NCCL_DEBUG=VERSION` prints it), not that of the package.

## How hangdoc knows

It reads the version of the loaded libnccl from its file and that of torch from
its metadata, the architecture of the host, the C++ and Python frames of the
rank, and the state of its communicators from NCCL's memory.

## When it can be wrong

Another fault leads to the same place: a rank is in `ncclLocalOpAppend` also if
the network does not take what it has sent. So this finding is never an error.
For PXN the sign is only a setting that many healthy runs have, and the finding
is an `info`: it tells what to try next. No such hang was observed by the
developers; all entries come from the reports below.

## References

- NCCL on aarch64: https://github.com/NVIDIA/nccl/issues/2353
- NCCL 2.28.9: https://github.com/NVIDIA/nccl/releases/tag/v2.28.9-1
- CUDA graphs: https://github.com/pytorch/pytorch/issues/115388,
  https://github.com/vllm-project/vllm/pull/39846
- PXN: https://docs.nvidia.com/cuda/cuest/troubleshooting/index.html
- Overlapped all-to-all: https://github.com/NVIDIA/Megatron-LM/issues/1828
- `destroy_process_group` in a `finally`:
  https://github.com/pytorch/torchtitan/pull/1342
"""

from collections.abc import Iterator

from hangdoc.reasoning.causes.defects import Shown, find_defects
from hangdoc.reasoning.model.rank import numbers_of
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import next_steps, words
from hangdoc.torch_facts.nccl import version_text

_NAMES = {"nccl": "NCCL", "torch": "torch"}


def check(run: Run) -> Iterator[Draft]:
    """One finding for each defect whose sign ranks show."""
    for shown in find_defects(run):
        yield _draft(run, shown)


def _draft(run: Run, shown: Shown) -> Draft:
    defect, who = shown.defect, sorted(shown.signs)
    library = f"{_NAMES[defect.library]} {shown.version}"
    fixed = f" (fixed in {version_text(defect.fixed)})" if defect.fixed is not None else ""
    said = words.do(who, "has", "have") if defect.only_matches else words.do(who, "shows", "show")
    sign = "a setting with which hangs are known" if defect.only_matches else "the sign of a known hang"
    place = f", {shown.architecture}" if shown.architecture else ""
    return Draft(
        severity="info" if defect.only_matches else "warning",
        confidence=defect.confidence,
        culprits=() if defect.only_matches else who,
        victims=who if defect.only_matches else numbers_of(run.waiting),
        summary=f"{said} {sign} of {library}: {defect.what}{fixed}",
        evidence=[
            *(Evidence(rank, "stacks", shown.signs[rank]) for rank in who[:4]),
            Evidence(None, "machine", f"{library}{place}"),
            Evidence(None, "known defects", defect.sources[0]),
        ],
        remedy=defect.remedy,
        commands=next_steps.look_again(run.ranks[who[0]]),
    )
