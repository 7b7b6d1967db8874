"""Ranks that wait in one call: they spin in the GPU driver, have different roots or tensors, or a second thread is in a call of
the same group."""

import math
from collections.abc import Hashable, Iterable

from hangdoc.parse import natural
from hangdoc.phrases import ranks
from hangdoc.reasoning.evidence.stack import reading
from hangdoc.reasoning.model.agreement import agreement
from hangdoc.reasoning.model.holds import Hold, InStore
from hangdoc.reasoning.model.kinds import Mismatch, Roots, SameCall, Spinning, Tensors, Threads
from hangdoc.reasoning.model.rank import Class, Rank, merged, ranks_of
from hangdoc.reasoning.ranks import operations
from hangdoc.reasoning.ranks.counters import goes_over
from hangdoc.reasoning.ranks.given import TENSOR
from hangdoc.torch_facts import file_names


def kind_of(classes: Iterable[Class]) -> tuple[Hold, tuple[int, ...]]:
    """(why all ranks of a group wait in one call, which ranks to blame)."""
    classes = tuple(classes)
    if all(one.first.spins for one in classes):
        return Spinning(), ()
    if all(one.first.wait is not None and one.first.wait.kind == "store" for one in classes):
        return InStore(), ranks_of(classes)  # not for each other, but for whoever should set the key
    return different_arguments(classes, complete=True) or _threads(classes) or _places(classes) or (SameCall(), ())


def _places(classes: Iterable[Class]) -> tuple[Mismatch, tuple[int, ...]] | None:
    """Calls of one operation at different lines: of different models, or of groups that could not be read. None if all are at
    one line."""
    parts = merged(classes, lambda rank: rank.where)
    places = [f"{ranks(one.ranks)} at {at.file}:{at.line}" for one in parts if (at := one.first.where) is not None]
    if len(parts) < 2 or len(places) < len(parts):
        return None
    # Two lines may make one call, so this is no proof.
    reason = f"at different lines: {', '.join(places)}"
    return Mismatch(parts=parts, reason=reason, ends="unknown"), ranks_of(parts)


def _threads(classes: Iterable[Class]) -> tuple[Threads, tuple[int, ...]] | None:
    calls = [
        (one, thread.name or "another thread", other.operation.op)
        for one in classes
        if one.first.process is not None and not one.first.moving
        for thread, other in operations.beside(one.first.process, one.first.thread, one.first.wait)
    ]
    if not calls:
        return None
    # That their order differs is inferred, not observed: two slow calls look the same for a while.
    return Threads(calls=tuple(calls), ends="unknown"), tuple(sorted({n for one, _, _ in calls for n in one.ranks}))


def different_arguments(classes: Iterable[Class], *, complete: bool) -> tuple[Roots | Tensors, tuple[int, ...]] | None:
    """The first call with different roots, or else with different tensors; None for none. Unless all ranks are in it
    (`complete`), they may be in different ones of a series of calls, whose roots come from a loop or from torch."""
    by_point: dict[Hashable, list[Class]] = {}
    for one in classes:
        if one.first.wait is not None and one.first.wait.kind == "collective" and not one.first.moving:
            by_point.setdefault(one.first.wait.point, []).append(one)
    roots = (_roots(alike, complete=complete) for alike in by_point.values())
    tensors = (_tensors(alike) for alike in by_point.values())
    return next((found for found in (*roots, *tensors) if found is not None), None)


def _roots(classes: list[Class], *, complete: bool) -> tuple[Roots, tuple[int, ...]] | None:
    waits = [(one, one.first.wait.root) for one in classes if one.first.wait is not None]
    if not complete and all(goes_over(one.first, root) or _chosen_by_torch(one.first) for one, root in waits):
        return None
    values = agreement({n: str(root) for one, root in waits if root is not None for n in one.ranks})
    return (Roots(values=values), values.odd) if values.differs else None


def _chosen_by_torch(rank: Rank) -> bool:
    """Whether torch.distributed.nn made the call: it loops over all roots."""
    at = reading(rank.thread).call if rank.thread is not None else None
    callers = rank.thread.frames[at + 1 :] if rank.thread is not None and at is not None else ()
    return any(file_names.AUTOGRAD_COLLECTIVES in frame.file for frame in callers[:2])


def _tensors(classes: list[Class]) -> tuple[Tensors, tuple[int, ...]] | None:
    within: dict[tuple[tuple[int, ...], int | None], dict[int, str]] = {}
    for one in classes:
        if one.first.given is not None:
            same_call = one.first.given.lines, one.first.given.number
            within.setdefault(same_call, {}).update(dict.fromkeys(one.ranks, one.first.given.tensor))
    for shown in within.values():
        values = agreement({rank: _amount(tensor) for rank, tensor in shown.items()})
        if values.differs:
            return Tensors(values=values, shown=shown), values.odd
    return None


def _amount(tensor: str) -> str:
    """Dtype and number of elements. The shape may differ if these are equal."""
    match = TENSOR.match(tensor)
    sizes = [natural(size) or 0 for size in (match[2] if match else "").split(", ") if size]
    return f"{match[1] if match else '?'} x {math.prod(sizes)}"
