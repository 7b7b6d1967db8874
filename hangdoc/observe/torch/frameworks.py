"""Where frameworks keep the number of their step: one table of classes and of functions, with the versions in which it was found.

What does not match is left out: another version may count elsewhere. torch's GradScaler and DistributedDataParallel's Reducer are
not here, because they count in tensors and in C++.
"""

from typing import NamedTuple

from hangdoc.observe.memory import Unreadable
from hangdoc.observe.objects import Objects
from hangdoc.snapshot import TrainerCount

_MAX_STEPS = 1 << 48


class _OfClass(NamedTuple):
    """A number in an object."""

    framework: str
    module: str
    """How the name of the module of its class begins."""
    name: str
    """The class."""
    done: str
    """Path of attributes."""
    total: str | None
    shown: str
    versions: str
    """Tried with."""


class _OfFunction(NamedTuple):
    """A number in a variable of a function that runs."""

    framework: str
    file: str
    """How its path ends."""
    function: str
    done: str
    total: str | None
    """Path from the variable `self`."""
    shown: str
    versions: str


_PROGRESS = "epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed"
_SCHEDULES = "/torch/distributed/pipelining/schedules.py"
_CLASSES = (
    _OfClass("transformers", "transformers.", "TrainerState", "global_step", "max_steps", "TrainerState.global_step", "5.23"),
    _OfClass(
        "lightning", "pytorch_lightning.", "_FitLoop", "epoch_loop.batch_progress.current.ready", "max_batches",
        "fit_loop.epoch_loop.batch_progress", "2.6",
    ),
    _OfClass("lightning", "pytorch_lightning.", "_FitLoop", _PROGRESS, "epoch_loop.max_steps", "global_step", "2.6"),
    _OfClass(
        "lightning", "lightning.", "_FitLoop", "epoch_loop.batch_progress.current.ready", "max_batches",
        "fit_loop.epoch_loop.batch_progress", "2.6",
    ),
    _OfClass("lightning", "lightning.", "_FitLoop", _PROGRESS, "epoch_loop.max_steps", "global_step", "2.6"),
    _OfClass("accelerate", "accelerate.", "Accelerator", "step", None, "Accelerator.step", "1.15"),
    _OfClass("deepspeed", "deepspeed.", "DeepSpeedEngine", "global_steps", None, "DeepSpeedEngine.global_steps", "0.19"),
    _OfClass("deepspeed", "deepspeed.", "DeepSpeedEngine", "micro_steps", None, "DeepSpeedEngine.micro_steps", "0.19"),
)  # fmt: skip
_FUNCTIONS = (
    _OfFunction(
        "torch", _SCHEDULES, "_step_microbatches", "fwd_mb_index", "_n_microbatches", "forward micro-batch", "2.13"
    ),
    _OfFunction(
        "torch", _SCHEDULES, "_step_microbatches", "bwd_mb_index", "_n_microbatches", "backward micro-batch", "2.13"
    ),
    _OfFunction("torch", _SCHEDULES, "_step_microbatches", "time_step", None, "action of the schedule", "2.13"),
)
_NAMES = frozenset(row.name for row in _CLASSES)


def counts_of_object(objects: Objects, address: int) -> list[TrainerCount]:
    """The numbers of an object, if it is of a class in the table."""
    name = objects.class_name(address)
    if name not in _NAMES:
        return []
    module, _ = objects.class_at(objects.memory.word(address + 8))
    rows = [row for row in _CLASSES if row.name == name and module.startswith(row.module)]
    return [
        count
        for row in rows
        if (count := _count(row, objects.integer_at(address, row.done), _total(objects, address, row.total)))
        is not None
    ]


def counts_of_function(objects: Objects, file: str, function: str, variables: dict[str, int]) -> list[TrainerCount]:
    """The numbers in the variables of a function that runs, if it is in the table."""
    counts = []
    for row in _FUNCTIONS:
        if function == row.function and file.endswith(row.file) and row.done in variables:
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


def _count(row: _OfClass | _OfFunction, done: int | None, total: int | None) -> TrainerCount | None:
    if done is None or not 0 <= done <= _MAX_STEPS:
        return None
    return TrainerCount(framework=row.framework, name=row.shown, done=done, total=total)
