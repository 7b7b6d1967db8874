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

import math
import re
from collections.abc import Iterator

from hangdoc.diagnose import facts, recorded, words
from hangdoc.diagnose.camps import roots
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural

CODE = "HD206"
NAME = "tensor-mismatch"
EXPLAINS = ("HD901", "HD202", "HD201", "HD203")

_TENSOR = re.compile(r"^(\w+)\[([\d, ]*)\]$")
# Which arguments must have the same number of elements on all ranks.
_SAME = {
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
    "all_gather_into_tensor": ("input_tensor", "output_tensor"),
    "all_gather": ("tensor",),
    "reduce_scatter_tensor": ("input", "output"),
}


def check(run: Run) -> Iterator[Finding]:
    """One finding for a collective in which ranks wait with different tensors."""
    places: dict[tuple[object, ...], list[tuple[Rank, str]]] = {}
    other_roots = {number for found in roots(run) for _, group in found for number in group}
    for rank in run.waiting():
        if rank.moving or rank.wait is None or rank.wait.kind != "collective" or (tensor := _tensor(rank)) is None:
            continue
        if rank.rank in other_roots:
            continue  # HD201's: what one rank calls its tensor is none of the other's
        places.setdefault((rank.wait.point, _within(rank)), []).append((rank, tensor))
    for ranks in places.values():
        shown = {rank.rank: tensor for rank, tensor in ranks}
        camps = words.by_value([rank for rank, _ in ranks], {rank: _amount(tensor) for rank, tensor in shown.items()})
        if len(camps) > 1:
            yield _finding(run, ranks[0][0], camps, shown)


def _within(rank: Rank) -> tuple[int, ...]:
    """The lines at which one of torch's calls makes another: broadcast_object_list sends a size first, then what it is of."""
    frames = rank.thread.frames if rank.thread is not None else ()
    return tuple(frame.line for frame in frames if frame.file.endswith(facts.C10D))[1:]


def _tensor(rank: Rank) -> str | None:
    """`float32[64, 8]` of the call that a rank waits in; None where it could not be read."""
    for frame in rank.thread.frames if rank.thread is not None else ():
        if frame.file.endswith(facts.C10D) and (names := _SAME.get(facts.plain(frame.function))):
            for local in frame.locals:
                if local.name in names and _TENSOR.match(local.text):
                    return local.text
        if not frame.library and not frame.native:
            break  # what lies outside of the user's call is not this call
    given = recorded.tensor(rank) if rank.wait is not None and rank.wait.operation.op in _SAME else None
    return given if given is not None and _TENSOR.match(given) else None


def _amount(tensor: str) -> str:
    """Type and number of elements: a shape may differ where these agree."""
    match = _TENSOR.match(tensor)
    sizes = [natural(size) or 0 for size in (match[2] if match else "").split(", ") if size]
    return f"{match[1] if match else '?'} x {math.prod(sizes)}"


def _finding(run: Run, first: Rank, camps: words.Camps, shown: dict[int, str]) -> Finding:
    odd = words.odd_ones(camps)
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.93,
        culprits=odd,
        victims=(rank.rank for rank in run.waiting()),
        summary=f"ranks wait in {words.operation(first)} with different tensors: "
        + "; ".join(f"{shown[group[0]]} on {words.ranks(group)}" for _, group in camps[:4]),
        evidence=[
            *(
                Evidence(rank=group[0], probe="interpreter", text=f"gave {shown[group[0]]} to {words.operation(first)}")
                for _, group in camps[:4]
            ),
            *words.class_evidence(run.waiting()),
            *words.standstill(run),
        ],
        remedy="Make type and number of elements equal on all ranks: pad, or exchange the sizes first.",
        commands=words.look_again(run.ranks[odd[0]]),
    )
