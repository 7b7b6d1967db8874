"""HD105: a snapshot that fires it, and the most similar one that must not."""

from typing import Any

from msgspec.structs import replace

from hangdoc.snapshot import Exit, Process, Snapshot
from tests.rules.shapes import behind_loop, data, in_loop
from tests.unit.builders import LOOP, backward, c10d, frame, local, native_backward, rank, snapshot

_LOOP = replace(LOOP, exits=(Exit(line=18, statement="break", conditions=("loss < target",)),))


def inside(number: int, **more: Any) -> Process:
    """In the backward of the loop."""
    variables = (local("step", 4), local("loss", 0.31))
    here = frame("train", 15, loops=(_LOOP,), locals=variables)
    return rank(number, *backward(), here, native=native_backward(), **more)


def left(number: int, **more: Any) -> Process:
    """Behind the loop, which it left with `break`."""
    variables = (local("step", 3), local("loss", 0.09))
    return rank(number, *c10d("barrier"), frame("train", 22, loops=(_LOOP,), locals=variables), **more)


def fires() -> Snapshot:
    return snapshot(inside(0), left(1))


def quiet() -> Snapshot:
    """The data say why."""
    return snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b")))
