"""The numbers of steps that frameworks keep, by the tables of `torch_facts.frameworks`.

What does not match is left out: another version may count elsewhere. torch's GradScaler and DistributedDataParallel's Reducer are
not here, because they count in tensors and in C++.
"""

import contextlib

import msgspec

from hangdoc.observe.memory.frames import Frames, MemoryFrame
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.snapshot import TrainerCount
from hangdoc.torch_facts.frameworks import CLASS_COUNTS, FUNCTION_COUNTS, ClassCount, FunctionCount

_MAX_STEPS = 1 << 48
_NAMES = frozenset(row.name for row in CLASS_COUNTS)


def counts_of_object(objects: Objects, address: int) -> list[TrainerCount]:
    """The numbers of an object, if it is of a class in the table."""
    name = objects.class_name(address)
    if name not in _NAMES:
        return []
    module, _ = objects.class_at(objects.memory.word(address + 8))
    rows = [row for row in CLASS_COUNTS if row.name == name and module.startswith(row.module)]
    return [
        count
        for row in rows
        if (count := _count(row, objects.counter_at(address, row.done), _total(objects, address, row.total)))
        is not None
    ]


def counts_of_function(objects: Objects, frames: Frames, frame: MemoryFrame) -> list[TrainerCount]:
    """The numbers in the variables of a function that runs, if it is in the table."""
    counts = []
    for row in FUNCTION_COUNTS:
        if row.function.is_at(frame.file, frame.function):
            done, total = (_read(objects, frames, frame, path) for path in (row.done, row.total))
            if done is not None and row.first is not None:
                in_batch = len(frame.loops) >= row.loops
                done += (0 if in_batch else 1) - row.first
            ended, fetched = (_read(objects, frames, frame, path) for path in (row.ended, row.fetched))
            if fetched is None or not (done or 0) <= fetched <= _MAX_STEPS:
                fetched = None  # a pass that has begun since `done` was read has another count
            count = _count(row, done, total if total is not None or not ended else fetched)
            if count is not None:
                number = _number_pass(row, _read(objects, frames, frame, row.passes))
                of_batches = row.batches_from is not None
                counts.append(msgspec.structs.replace(count, fetched=fetched, batches=of_batches, pass_number=number))
    return counts


def _read(objects: Objects, frames: Frames, frame: MemoryFrame, path: str | None) -> int | None:
    """The integer at a variable, or at a path of attributes from it; None for anything else."""
    name, _, attributes = (path or "").partition(".")
    if name not in frame.variables:
        return None
    if attributes:
        return objects.counter_at(frame.variables[name], attributes)
    with contextlib.suppress(Unreadable):
        return frames.integer(frame, name)
    return None


def _number_pass(row: FunctionCount, value: int | None) -> int | None:
    """The number of the pass, from 1; None if it is unknown or impossible."""
    number = value - row.first_pass + 1 if value is not None else 0
    return number if 0 < number <= _MAX_STEPS else None


def _total(objects: Objects, address: int, path: str | None) -> int | None:
    return objects.integer_at(address, path) if path is not None else None


def _count(row: ClassCount | FunctionCount, done: int | None, total: int | None) -> TrainerCount | None:
    if done is None or not 0 <= done <= _MAX_STEPS:
        return None
    total = total if total is not None and 0 < total <= _MAX_STEPS else None
    return TrainerCount(framework=row.framework, name=row.shown, done=done, total=total)
