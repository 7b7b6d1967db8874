"""How many samples a dataset and a sampler have, and how many batches a dataloader, read from the memory of a process.

`__len__` is not called: what it computes is computed here from the attributes that it uses. Sources: torch/utils/data/sampler.py,
distributed.py, dataset.py and dataloader.py of torch 2.0 to 2.13; accelerate/data_loader.py 1.15;
transformers/trainer_pt_utils.py 5.23. Of a class that is not in this table, only a `__len__` of one simple expression is
understood (`Objects.simple_length`)."""

import contextlib
from collections.abc import Callable

from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.memory.python_state import torch_value
from hangdoc.regex import regex
from hangdoc.torch_facts import frameworks

_MAX_DEPTH = 8
_MAX_LENGTH = 1 << 48
_TENSOR = regex(r"\w+\[(\d+)[\d, ]*\]")


class Lengths:
    """Computes lengths of objects in one process."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._lengths: dict[int, int | None] = {}

    def length(self, address: int, depth: int = 0) -> int | None:
        """`len()` of an object; None if it can't be known."""
        if address not in self._lengths:
            length = None
            if depth < _MAX_DEPTH:
                with contextlib.suppress(Unreadable, ZeroDivisionError):
                    length = self._compute(address, depth)
            if length is not None and not 0 <= length <= _MAX_LENGTH:
                length = None
            self._lengths[address] = length
        return self._lengths[address]

    def _compute(self, address: int, depth: int) -> int | None:
        objects = self.objects
        length = objects.length_of_builtin(address)
        if length is not None:
            return length
        tensor = _TENSOR.fullmatch(torch_value(objects.memory, address) or "")
        if tensor is not None:
            return int(tensor[1])
        if (method := objects.method(address, "__len__")) is None:
            return None
        owner, function = method
        compute = _KNOWN.get(objects.class_at(owner))
        if compute is not None:
            return compute(self, address, depth + 1)
        number, container = objects.simple_length(address, function)
        return self.length(container, depth + 1) if container is not None else number

    def integer(self, address: int, name: str) -> int | None:
        """An attribute that is an integer."""
        return self.objects.integer_at(address, name)

    def attribute(self, address: int, name: str, depth: int) -> int | None:
        """`len()` of an attribute."""
        return self.length(self.objects.at(address, name), depth)

    def batches(self, samples: int | None, sampler: int, batch_size: str = "batch_size") -> int | None:
        """How many batches a number of samples makes with the `batch_size` and `drop_last` of `sampler`."""
        size = self.integer(sampler, batch_size)
        drop = self.integer(sampler, "drop_last")
        if samples is None or not size or drop is None:
            return None
        return samples // size if drop else -(-samples // size)

    def attributes(self, address: int) -> dict[str, int]:
        """The attributes of an instance."""
        return self.objects.attributes(address)


def _random_sampler(lengths: Lengths, sampler: int, depth: int) -> int | None:
    own = lengths.integer(sampler, "_num_samples")
    return own if own is not None else lengths.attribute(sampler, "data_source", depth)


def _batch_sampler(lengths: Lengths, sampler: int, depth: int) -> int | None:
    return lengths.batches(lengths.attribute(sampler, "sampler", depth), sampler)


def _tensor_dataset(lengths: Lengths, dataset: int, depth: int) -> int | None:
    memory = lengths.objects.memory
    first = next(memory.elements(lengths.attributes(dataset)["tensors"], 1), None)
    return lengths.length(first, depth) if first is not None else None


def _concat_dataset(lengths: Lengths, dataset: int, depth: int) -> int | None:
    memory = lengths.objects.memory
    ends = list(memory.elements(lengths.attributes(dataset)["cumulative_sizes"], 100_000))
    return memory.integer(ends[-1]) if ends else 0


def _loader(lengths: Lengths, loader: int, depth: int) -> int | None:
    """DataLoader.__len__; of an IterableDataset, dataset and batch size decide."""
    attributes = lengths.attributes(loader)
    memory = lengths.objects.memory
    batch_sampler = attributes.get("batch_sampler", 0)
    batched = bool(batch_sampler) and memory.kind(batch_sampler)[0] != "NoneType"
    if lengths.integer(loader, "_dataset_kind") == 1:
        samples = lengths.length(attributes["dataset"], depth)
        return lengths.batches(samples, loader) if batched else samples
    return lengths.length(batch_sampler if batched else attributes["sampler"], depth)


def _batch_sampler_shard(lengths: Lengths, sampler: int, depth: int) -> int | None:
    batches = lengths.attribute(sampler, "batch_sampler", depth)
    names = ("split_batches", "num_processes", "drop_last", "even_batches", "process_index")
    split, processes, drop, even, index = (lengths.integer(sampler, name) for name in names)
    if batches is None or split is None or not processes or drop is None or even is None or index is None:
        return None
    if split:
        return batches
    share, rest = divmod(batches, processes)
    return share + (1 if rest and not drop and (even or index < rest) else 0)


def _skip_batches(lengths: Lengths, sampler: int, depth: int) -> int | None:
    batches, skipped = lengths.attribute(sampler, "batch_sampler", depth), lengths.integer(sampler, "skip_batches")
    return batches - skipped if batches is not None and skipped is not None else None


_Compute = Callable[[Lengths, int, int], int | None]


def _of_attribute(name: str) -> _Compute:
    return lambda lengths, address, depth: lengths.attribute(address, name, depth)


def _number(name: str) -> _Compute:
    return lambda lengths, address, depth: lengths.integer(address, name)


_KNOWN: dict[frameworks.Class, _Compute] = {
    frameworks.SEQUENTIAL_SAMPLER: _of_attribute("data_source"),
    frameworks.RANDOM_SAMPLER: _random_sampler,
    frameworks.SUBSET_SAMPLER: _of_attribute("indices"),
    frameworks.WEIGHTED_SAMPLER: _number("num_samples"),
    frameworks.BATCH_SAMPLER: _batch_sampler,
    frameworks.DISTRIBUTED_SAMPLER: _number("num_samples"),
    frameworks.TENSOR_DATASET: _tensor_dataset,
    frameworks.SUBSET: _of_attribute("indices"),
    frameworks.CONCAT_DATASET: _concat_dataset,
    frameworks.STACK_DATASET: _number("_length"),
    frameworks.DATALOADER: _loader,
    frameworks.ACCELERATE_ADAPTER: _of_attribute("base_dataloader"),
    frameworks.ACCELERATE_SHARD: _batch_sampler_shard,
    frameworks.ACCELERATE_SKIP: _skip_batches,
    frameworks.GROUPED_SAMPLER: _of_attribute("lengths"),
}
"""By module and name of the class that defines `__len__`."""
