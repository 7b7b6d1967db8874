"""Python objects in the memory of a process: classes with their modules, attributes along a path, and `len()` where it can be
known without a call.

Reads memory without a pause; what does not fit raises Unreadable. Sources: CPython's Include/cpython/object.h, funcobject.h and
Objects/rangeobject.c.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.observe.memory.memory import DICT, TUPLE, TYPE, Memory, Unreadable

_DICT, _MRO = 264, 344
"""tp_dict and tp_mro."""
_MAX_BASES = 32
_HEAP_TYPE = 1 << 9
_FAST_LOCAL = {(3, 10): 124, (3, 11): 124, (3, 12): 124, (3, 13): 85, (3, 14): 86}
"""The instruction that loads `self` (LOAD_FAST, since 3.14 LOAD_FAST_BORROW)."""
_SMALL_INT = 94
"""LOAD_SMALL_INT of 3.14, in the second code unit."""


class _Form(NamedTuple):
    """A method `__len__` that is nothing but this expression, as its code object shows it."""

    units: dict[tuple[int, int], int]
    """How many code units it has, by version."""
    takes: int
    """Names that it uses, without `len`."""
    of_length: bool
    """Whether it returns `len()` of the object, and not the object."""
    self_at: dict[tuple[int, int], int] | None
    """The code unit that loads `self`; None if a variable of the module is used."""


def _by_version(*values: int) -> dict[tuple[int, int], int]:
    return {(3, 10 + index): value for index, value in enumerate(values)}


_SELF_FIRST, _SELF_AFTER_LEN = _by_version(0, 1, 1, 1, 1), _by_version(1, 7, 6, 6, 6)
_FORMS = (
    _Form(_by_version(3, 8, 13, 13, 13), 1, False, _SELF_FIRST),  # self.x
    _Form(_by_version(4, 13, 23, 23, 23), 2, False, _SELF_FIRST),  # self.x.y
    _Form(_by_version(5, 21, 22, 22, 22), 1, True, _SELF_AFTER_LEN),  # len(self.x)
    _Form(_by_version(6, 26, 32, 32, 32), 2, True, _SELF_AFTER_LEN),  # len(self.x.y)
    _Form(_by_version(2, 8, 7, 7, 7), 1, False, None),  # X
    _Form(_by_version(4, 21, 16, 16, 16), 1, True, None),  # len(X)
)
_CONSTANT = _by_version(2, 3, 2, 2, 3)


class Objects:
    """Reads objects of one process, of this version of CPython."""

    def __init__(self, memory: Memory, version: tuple[int, int]) -> None:
        self.memory, self._version = memory, version
        self._classes: dict[int, tuple[str, str]] = {}

    def class_name(self, address: int) -> str:
        """The name of an object's class, without its module."""
        return self.memory.kind(address)[0].rpartition(".")[2]

    def class_at(self, type_address: int) -> tuple[str, str]:
        """(module, name) of a class. The module of a class in C is empty if its name does not have it."""
        if type_address not in self._classes:
            module, _, name = self.memory.c_string(self.memory.word(type_address + 24)).rpartition(".")
            if not module:
                with contextlib.suppress(Unreadable):
                    table = self.memory.word(type_address + _DICT)
                    named = self.memory.find_named(table, ("__module__",), 64)
                    module = self.memory.text(named["__module__"]) if named else ""
            self._classes[type_address] = module, name
        return self._classes[type_address]

    def bases(self, address: int) -> Iterator[int]:
        """Addresses of the classes of an object in the order in which methods are looked up."""
        types = self.memory.word(self.memory.word(address + 8) + _MRO)
        if not self.memory.kind(types)[1] & TUPLE:
            raise Unreadable("not a class")
        yield from self.memory.elements(types, _MAX_BASES)

    def is_instance(self, address: int) -> bool:
        """Whether an object is an instance of a class in Python, which may have attributes."""
        flags = self.memory.kind(address)[1]
        return bool(flags & _HEAP_TYPE) and not flags & TYPE

    def attributes(self, address: int) -> dict[str, int]:
        """The attributes of an instance."""
        return dict(self.memory.attributes(address))

    def at(self, address: int, path: str) -> int:
        """The object at a path of attributes such as `optimizer.step.total`."""
        for name in path.split("."):
            attributes = self.attributes(address)
            if name not in attributes:
                raise Unreadable(f"no attribute {name}")
            address = attributes[name]
        return address

    def integer_at(self, address: int, path: str) -> int | None:
        """The integer at a path of attributes; None for anything else."""
        with contextlib.suppress(Unreadable):
            return self.memory.integer(self.at(address, path))
        return None

    def counter_at(self, address: int, path: str) -> int | None:
        """As `integer_at`, of an attribute with which a process that runs counts."""
        with contextlib.suppress(Unreadable):
            return self.memory.settled_integer(lambda: self.at(address, path))
        return None

    def length_of_builtin(self, address: int) -> int | None:
        """`len()` of a container of CPython's, of a range, of a tensor or of an array; None for anything else."""
        name, _flags = self.memory.kind(address)
        length = self.memory.length(address)
        if length is not None:
            return length
        if name == "range":
            return self.memory.integer(self.memory.word(address + 40))  # rangeobject.length
        if name == "numpy.ndarray":
            dimensions = int.from_bytes(self.memory.read(address + 24, 4), "little", signed=True)
            return self.memory.word(self.memory.word(address + 32)) if 0 < dimensions <= 64 else None
        return None

    def method(self, address: int, name: str) -> tuple[int, int] | None:
        """(class, function) of a method of an object; None if no class in Python defines it."""
        for base in self.bases(address):
            with contextlib.suppress(Unreadable):
                table = self.memory.word(base + _DICT)
                if table and self.memory.kind(table)[1] & DICT:
                    named = self.memory.find_named(table, (name,))
                    if name in named:
                        return base, named[name]
        return None

    def simple_length(self, address: int, function: int) -> tuple[int | None, int | None]:
        """What a method `__len__` returns if it is only `return self.x`, `return len(self.x)`, `return X` or a number: the
        number, or the object whose `len()` it is. Both None for any other method."""
        memory, layout_3_10 = self.memory, self._version < (3, 11)
        if self._version not in _FAST_LOCAL or memory.kind(function)[0] != "function":
            return None, None
        code, variables = memory.word(function + 48), memory.word(function + 16)
        if memory.kind(code)[0] != "code":
            return None, None
        names = self._read_texts(memory.word(code + (64 if layout_3_10 else 32)))
        constants = list(memory.elements(memory.word(code + (56 if layout_3_10 else 24)), 8))
        if layout_3_10:
            units = memory.data(memory.word(code + 48))
        else:
            begin = {(3, 11): 184, (3, 12): 192, (3, 13): 200, (3, 14): 208}[self._version]
            units = memory.read(code + begin, 2 * min(memory.word(code + 16), 64))
        count = len(units) // 2
        if not names and count == _CONSTANT[self._version]:
            if self._version >= (3, 14) and units[2] == _SMALL_INT:
                return units[3], None
            return memory.integer(constants[-1]), None
        for form in _FORMS:
            used = names[1:] if form.of_length and names[:1] == ["len"] else [] if form.of_length else names
            if count != form.units[self._version] or len(used) != form.takes or len(constants) > 1:
                continue
            if form.self_at is None:
                addresses = memory.find_named(variables, used)
                result = addresses.get(used[0], 0)
            else:
                at = 2 * form.self_at[self._version]
                if units[at : at + 2] != bytes((_FAST_LOCAL[self._version], 0)):
                    continue
                result = self.at(address, ".".join(used))
            if result:
                return (None, result) if form.of_length else (memory.integer(result), None)
        return None, None

    def _read_texts(self, table: int) -> list[str]:
        return [self.memory.text(name) for name in self.memory.elements(table, 8)]
