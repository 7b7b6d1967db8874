"""Same collective, different sizes or dtypes.

## What it finds

All ranks stand still in one collective, and the tensors they gave to it differ in size or type.

## Why it hangs

A collective takes for granted that all ranks give the same number of elements of one type. Where they do not, one rank
waits for bytes that the others never send; on a backend that notices, the rank with the smaller buffer raises and the
others may wait for it.

## Evidence

Type and shape of the tensor in each rank's call, read from the memory of the process; where no Python frame holds it (the
gradients of a backward pass), from torch's flight recorder.

## What to do

Print the shape on every rank before the call. Pad to a common size, or gather the sizes first; use `all_gather_object` or
`all_to_all` with sizes for ragged data. Give all ranks the same precision.

## When it would be wrong

all_gather over uneven tensors and all_to_all take different sizes on purpose; these are not compared.

## References

- torch.distributed, collective functions: https://docs.pytorch.org/docs/stable/distributed.html
- TORCH_DISTRIBUTED_DEBUG: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Tensors
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD206"
NAME = "tensor-mismatch"
ABOUT = (Tensors,)


def say(run: Run, blockage: Blockage) -> Finding:
    """A collective in which ranks wait with tensors that do not match."""
    kind = blockage.kind
    assert isinstance(kind, Tensors)  # noqa: S101  (see ABOUT)
    values = kind.values.values[:4]
    operation = words.operation(run.ranks[values[0][1][0]])
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.93,
        summary=f"ranks are waiting in {operation} with different tensors: "
        + "; ".join(f"{kind.shown[group[0]]} on {words.ranks(group)}" for _, group in values),
        evidence=[
            *(
                Evidence(
                    rank=group[0],
                    probe="interpreter",
                    text=f"passed {kind.shown[group[0]]} to {operation}{words.also(group)}",
                )
                for _, group in values
            ),
            *words.class_evidence(run.waiting),
            *words.standstill(run),
        ],
        remedy="Pass tensors with the same dtype and number of elements on all ranks: pad them, or exchange the sizes first.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )
