"""The numbers of steps that frameworks keep, by the tables of `torch_facts.frameworks`.

What does not match is left out: another version may count elsewhere. torch's GradScaler and DistributedDataParallel's Reducer are
not here, because they count in tensors and in C++.
"""

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
        if (count := _count(row, objects.integer_at(address, row.done), _total(objects, address, row.total)))
        is not None
    ]


def counts_of_function(objects: Objects, file: str, function: str, variables: dict[str, int]) -> list[TrainerCount]:
    """The numbers in the variables of a function that runs, if it is in the table."""
    counts = []
    for row in FUNCTION_COUNTS:
        if row.function.is_at(file, function) and row.done in variables:
            total = _total(objects, variables["self"], row.total) if "self" in variables else None
            try:
                count = _count(row, objects.memory.integer(variables[row.done]), total)
            except Unreadable:
                continue
            counts += [count] if count is not None else []
    return counts


def _total(objects: Objects, address: int, path: str | None) -> int | None:
    total = objects.integer_at(address, path) if path is not None else None
    return total if total is not None and 0 < total <= _MAX_STEPS else None


def _count(row: ClassCount | FunctionCount, done: int | None, total: int | None) -> TrainerCount | None:
    if done is None or not 0 <= done <= _MAX_STEPS:
        return None
    return TrainerCount(framework=row.framework, name=row.shown, done=done, total=total)
