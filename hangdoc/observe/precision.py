"""In which floating type an object of a rank computes: a model by its parameters, an autocast by its own type.

A variable that names a type (`dtype = "float16"`) does not say that anything computes in it; these do.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from hangdoc.observe.memory import Memory, Unreadable
from hangdoc.observe.python_state import Variable, torch_value
from hangdoc.regex import regex

_TENSOR = regex(r"(\w+)\[([\d, ]*)\]")
_MAX_MODULES = 64
_MAX_PARAMETERS = 24
"""Of one model: a sample that takes 2 to 3 ms. The parameters of a layer are read together."""
_FLOATS = ("float", "bfloat")


def precisions(memory: Memory, name: str, instance: int, depth: int = 2) -> Iterator[Variable]:
    """`model.parameters()` as `bfloat16[65792]` for a torch.nn.Module: the type that most elements have, and how many, of its
    first parameters. `autocast(cpu, bfloat16)` for a torch.autocast that was entered and is enabled. Also of the
    object's own attributes."""
    try:
        held = dict(islice(memory.attributes(instance), 256))
    except Unreadable:
        return
    if "_parameters" in held and "_modules" in held:
        yield from _parameters(memory, name, instance)
    elif memory.kind(instance)[0] == "autocast":
        with contextlib.suppress(Unreadable, KeyError):
            yield from _autocast(memory, name, held)
    elif depth > 1:
        for attribute, address in islice(held.items(), 48):
            with contextlib.suppress(Unreadable):
                yield from precisions(memory, f"{name}.{attribute}", address, depth - 1)


def _parameters(memory: Memory, name: str, module: int) -> Iterator[Variable]:
    if module not in memory.models:  # many variables hold the same model
        memory.models[module] = _floats(memory, module)
    if (text := memory.models[module]) is not None:
        yield Variable(f"{name}.parameters()", text, None, None)


def _floats(memory: Memory, module: int) -> str | None:
    """The type that most elements of a model have, and how many; None for a model without any."""
    elements = Counter[str]()
    seen, todo, parameters = {module}, [module], 0
    while todo and len(seen) < _MAX_MODULES and parameters < _MAX_PARAMETERS:
        with contextlib.suppress(Unreadable, KeyError):  # changed meanwhile, or no plain object
            held = dict(memory.attributes(todo.pop()))
            for _, parameter in memory.named_items(held["_parameters"]):
                match = _TENSOR.fullmatch(torch_value(memory, parameter) or "")
                if match is not None and match[1].startswith(_FLOATS):
                    parameters += 1
                    elements[match[1]] += math.prod(int(size) for size in match[2].split(", ") if size)
            below = [child for _, child in memory.named_items(held["_modules"]) if child not in seen]
            seen.update(below)
            todo += below
    if not elements:
        return None
    dtype, count = elements.most_common(1)[0]
    return f"{dtype}[{count}]"


def _autocast(memory: Memory, name: str, held: dict[str, int]) -> Iterator[Variable]:
    """By the attributes of torch/amp/autocast_mode.py: `prev` is set by `__enter__`."""
    dtype = (torch_value(memory, held["fast_dtype"]) or "").removeprefix("torch.")
    if "prev" in held and dtype and memory.integer(held["_enabled"]):
        yield Variable(name, f"autocast({memory.text(held['device'])}, {dtype})", None, None)
