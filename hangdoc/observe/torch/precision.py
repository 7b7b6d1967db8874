"""The floating-point type in which an object of a rank computes: the parameters of a model, the dtype of an autocast.

A variable such as `dtype = "float16"` does not prove that anything computes in float16; these objects do.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.python_state import Variable, torch_value
from hangdoc.regex import regex

_TENSOR = regex(r"(\w+)\[([\d, ]*)\]")
_MAX_MODULES = 64
_MAX_PARAMETERS = 24
"""Limit per model: a sample of this size takes 2 to 3 ms. The parameters of one layer are always read together."""
_MAX_ENTRIES = 4096
"""Parameters or modules directly in one module."""
_MAX_NAME = 100
_FLOATS = ("float", "bfloat")


def precisions(memory: Memory, name: str, instance: int, depth: int = 2) -> Iterator[Variable]:
    """The floating-point types of an object and, up to `depth`, of its attributes.

    A torch.nn.Module gives `name.parameters()` as `bfloat16[65792], float32[128]`: how many elements of its parameters have which
    dtype, most first. Of a large model these are only the first ones: `bfloat16[65792], ...`. A torch.autocast that is entered
    and enabled gives `autocast(cpu, bfloat16)`.
    """
    try:
        named = islice(memory.attributes(instance), 256)
        attributes = {attribute: address for attribute, address in named if len(attribute) <= _MAX_NAME}
    except Unreadable:
        return
    if "_parameters" in attributes and "_modules" in attributes:
        yield from _parameters(memory, name, instance)
    elif memory.kind(instance)[0] == "autocast":
        with contextlib.suppress(Unreadable, KeyError):
            yield from _autocast(memory, name, attributes)
    elif depth > 1:
        for attribute, address in islice(attributes.items(), 48):
            with contextlib.suppress(Unreadable):
                yield from precisions(memory, f"{name}.{attribute}", address, depth - 1)


def _parameters(memory: Memory, name: str, module: int) -> Iterator[Variable]:
    if module not in memory.models:  # many variables hold the same model
        memory.models[module] = _floats(memory, module)
    if (text := memory.models[module]) is not None:
        yield Variable(f"{name}.parameters()", text, None, None)


def _floats(memory: Memory, module: int) -> str | None:
    """The dtypes of a model's parameters with their numbers of elements, and `...` if the model has more parameters than are
    read; None for a model without floating-point parameters, or if any that should be read can't be."""
    elements = Counter[str]()
    seen, todo, read = {module}, [module], set[int]()
    try:
        while todo and len(seen) < _MAX_MODULES and len(read) < _MAX_PARAMETERS:
            attributes = dict(memory.attributes(todo.pop()))
            own = [each for each in _list_present(memory, attributes["_parameters"]) if each not in read]
            for parameter in own:
                match = _TENSOR.fullmatch(torch_value(memory, parameter) or "")
                if match is None:
                    return None
                elements[match[1]] += math.prod(int(size) for size in match[2].split(", ") if size)
            read.update(own)  # modules may share a parameter
            below = [each for each in _list_present(memory, attributes["_modules"]) if each not in seen]
            seen.update(below)
            todo += below
    except (Unreadable, KeyError):  # it has changed during the read, or is no plain object
        return None
    by_count = sorted(elements.items(), key=lambda item: (not item[0].startswith(_FLOATS), -item[1]))
    if not by_count or not by_count[0][0].startswith(_FLOATS):
        return None
    return ", ".join([*(f"{dtype}[{count}]" for dtype, count in by_count), *(["..."] if todo else [])])


def _list_present(memory: Memory, entries: int) -> list[int]:
    """The values of a dict that are not None, each once. Raises Unreadable for a dict that is too large."""
    values = [value for _, value in islice(memory.items(entries), _MAX_ENTRIES + 1)]
    if len(values) > _MAX_ENTRIES:
        raise Unreadable("too many entries")
    return [value for value in dict.fromkeys(values) if memory.kind(value)[0] != "NoneType"]


def _autocast(memory: Memory, name: str, attributes: dict[str, int]) -> Iterator[Variable]:
    """Read the attributes of torch/amp/autocast_mode.py. `__enter__` sets `prev`."""
    dtype = (torch_value(memory, attributes["fast_dtype"]) or "").removeprefix("torch.")
    if "prev" in attributes and dtype and memory.integer(attributes["_enabled"]):
        yield Variable(name, f"autocast({memory.text(attributes['device'])}, {dtype})", None, None)
