"""Reads Python objects in another process's memory, without a pause.

The process runs during the reads, so every read is checked and bounded, and implausible objects are skipped. All reads together
are bounded by the `Budget` of the process: what it has made of its objects may be endless. `object_layout` has what differs
between versions of CPython. What all supported versions share comes from Include/object.h, Include/cpython/object.h,
Include/cpython/listobject.h, Include/cpython/setobject.h and Include/internal/pycore_dict.h.
"""

import contextlib
import os
import struct
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import NamedTuple

from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.memory.str_hash import StrHash
from hangdoc.procfs import ProcError, open_kernel_file

# tp_flags (Include/object.h): kinds of types, and the bits of the fast subclass checks
_INLINE_VALUES, MANAGED_DICT, _HEAP_TYPE = 1 << 2, 1 << 4, 1 << 9
LONG, LIST, TUPLE, BYTES, UNICODE, DICT, TYPE = (1 << bit for bit in (24, 25, 26, 27, 28, 29, 31))
_TP_NAME, _TP_BASICSIZE, _TP_FLAGS, _TP_DICTOFFSET = 24, 32, 168, 288
_MAX_ENTRIES = 20_000
_MANY_ENTRIES = 16
"""Entries of a dict for each wanted name, from which a search by hash is faster than reading them all."""
_EMPTY, _MAX_PROBES = -1, 256
"""A dict has at most two entries for three slots, so that a search ends after a few."""
_MAX_ATTRIBUTES = 64
_MAX_TEXT = 4_096
_MAX_LENGTH = 1 << 47
"""No container has more elements: there are not more addresses."""
_SLICE = 1 << 15
"""Bytes that are read between two looks at the budget."""
_READ_COST = 256
"""A read of a few bytes takes as long as one of this size."""

_ATTEMPTS = 4
"""To read a number that changes: at 1,500 changes a second, about one read of a hundred meets a change."""
_GAP, _TOGETHER = 256, 1 << 16
"""Objects that are read together: bytes between two of them, and of all."""


class Unreadable(Exception):
    """Memory that can't be read, or does not contain what was expected."""


class Overspent(Unreadable):
    """Reading the process takes too long."""


class Unsupported(Unreadable):
    """An interpreter that hangdoc does not support. The reason names the interpreter, not the process."""


class Keys(NamedTuple):
    """The entries of a dict's keys (PyDictKeysObject)."""

    entries: int
    first: int
    """Address of the first entry."""
    size: int
    """Bytes of an entry."""
    skip: int
    """Offset of the key in an entry; its value follows."""
    indices: int
    """Address of the hash table, of `slots` numbers of entries with `width` bytes each."""
    slots: int
    width: int


class Memory:
    """The memory of process `pid`, read through `<root>/PID/mem`, within the process's `budget`. Every method raises Unreadable.

    Callers skip single objects that can't be read. So that this does not hide that the budget was spent, leaving the `with` block
    raises Overspent then.
    """

    def __init__(
        self,
        pid: int,
        layout: Layout,
        root: str = "/proc",
        budget: Budget | None = None,
        str_hash: StrHash | None = None,
    ) -> None:
        self.pid, self.layout, self.str_hash = pid, layout, str_hash
        self._budget = budget or Budget()
        self._slice, self._began = _SLICE, time.thread_time()
        self._types: dict[int, tuple[str, int]] = {}
        self._names: dict[tuple[int, int], str] = {}
        """Names of attributes and variables, cached: all instances of a class share the same str objects."""
        self.models: dict[int, str | None] = {}
        """Results of `precision` for models, by address."""
        try:
            self._fd = open_kernel_file(f"{root}/{pid}/mem")
        except ProcError as error:
            raise Unreadable(str(error)) from error

    def __enter__(self) -> "Memory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self._began = self._budget.charge(self._began, _SLICE - self._slice)
        if self._budget.spent and (error is None or isinstance(error, Unreadable)):
            raise Overspent("reading its memory takes too long") from None

    def _settle(self) -> None:
        self._began = self._budget.charge(self._began, _SLICE - self._slice)
        self._slice = _SLICE
        if self._budget.spent:
            self._slice = 0  # every further read comes here
            raise Overspent("reading its memory takes too long")

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`."""
        if not 4096 <= address < 1 << 47 or not 0 <= size <= 1 << 24:
            raise Unreadable("address out of range")
        self._slice -= size + _READ_COST
        if self._slice < 0:
            self._settle()
        try:
            raw = os.pread(self._fd, size, address)
        except OSError as error:
            raise Unreadable(str(error.strerror)) from error
        if len(raw) != size:
            raise Unreadable("short read")
        return raw

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """The bytes of every (address, size) that can be read. Neighbours are read together: thousands of small objects are
        often on few pages. Raises Overspent alone."""
        contents: dict[tuple[int, int], bytes] = {}
        together: list[tuple[int, int]] = []
        end = 0
        for wanted in sorted(set(ranges)):
            if together and (wanted[0] > end + _GAP or wanted[0] + wanted[1] > together[0][0] + _TOGETHER):
                self._read_together(together, end, contents)
                together, end = [], 0
            together.append(wanted)
            end = max(end, wanted[0] + wanted[1])
        if together:
            self._read_together(together, end, contents)
        return contents

    def _read_together(self, ranges: list[tuple[int, int]], end: int, contents: dict[tuple[int, int], bytes]) -> None:
        first = ranges[0][0]
        try:
            raw = self.read(first, end - first)
        except Overspent:
            raise
        except Unreadable:
            if len(ranges) > 1:
                for wanted in ranges:
                    self._read_together([wanted], wanted[0] + wanted[1], contents)
            return
        for address, size in ranges:
            contents[address, size] = raw[address - first : address - first + size]

    def word(self, address: int) -> int:
        """The unsigned 64-bit word at `address`."""
        return int.from_bytes(self.read(address, 8), "little")

    def cpp_object(self, address: int) -> int:
        """Address of the C++ object of pybind11's instance at `address`: PyObject_HEAD, then the pointer to it
        (pybind11/detail/common.h)."""
        return self.word(address + 16)

    def c_string(self, address: int) -> str:
        """The NUL-terminated string at `address`, cut at 128 bytes."""
        out = b""
        while b"\0" not in out and len(out) < 128:
            out += self.read(address + len(out), 16)
        return out.split(b"\0", 1)[0].decode("utf-8", "replace")

    def kind(self, address: int) -> tuple[str, int]:
        """(type name, tp_flags) of the object at `address`."""
        type_address = self.word(address + 8)
        flags = self._read_flags(type_address)
        return self._types[type_address][0], flags

    def _read_flags(self, type_address: int) -> int:
        if type_address not in self._types:
            self._types[type_address] = (
                self.c_string(self.word(type_address + _TP_NAME)),
                self.word(type_address + _TP_FLAGS),
            )
        return self._types[type_address][1]

    def text(self, address: int) -> str:
        """The str at `address`, cut at 4096 characters."""
        try:
            head = self.read(address, 112)  # enough for most names, in one system call
        except Unreadable:
            head = self.read(address, 40)
        if not self._read_flags(int.from_bytes(head[8:16], "little")) & UNICODE:
            raise Unreadable("not a str")
        length = int.from_bytes(head[16:24], "little")
        state = int.from_bytes(head[32:36], "little")
        width, compact, ascii_only = (state >> 2) & 7, (state >> 5) & 1, (state >> 6) & 1
        if not compact or width not in (1, 2, 4):
            raise Unreadable("not a compact str")
        # In a str that is not ASCII, the UTF-8 length and pointer (and wstr's length, up to 3.11) precede the characters.
        offset = self.layout.text + (0 if ascii_only else self.layout.text - 24)
        size = min(length, _MAX_TEXT) * width
        raw = head[offset : offset + size]
        if len(raw) < size:
            raw = self.read(address + offset, size)
        return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "replace")

    def _read_name(self, address: int) -> str:
        """As `text`, but cached."""
        key = address, self.layout.text  # when names are first read, the form of str objects is still being calibrated
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self.text(address)
        return name

    def data(self, address: int) -> bytes:
        """The bytes object at `address`, cut at 4096."""
        if not self.kind(address)[1] & BYTES:
            raise Unreadable("not bytes")
        return self.read(address + 32, min(self.word(address + 16), _MAX_TEXT))

    def integer(self, address: int) -> int:
        """The int (or bool) at `address`, of at most two digits (60 bits)."""
        if not self.kind(address)[1] & LONG:
            raise Unreadable("not an int")
        tag, digits = struct.unpack("<q8s", self.read(address + 16, 16))
        if self.layout.tagged_ints:
            size, sign = tag >> 3, 1 - (tag & 3)
        else:
            size, sign = abs(tag), (tag > 0) - (tag < 0)
        if not 0 <= size <= 2:
            raise Unreadable("a larger int")
        low, high = struct.unpack("<II", digits)
        value = (low if size else 0) + ((high << 30) if size > 1 else 0)
        return int(sign * value)

    def settled_integer(self, find: Callable[[], int]) -> int:
        """The int at the address that `find` returns before and after it is read. A process that runs replaces the ints that it
        counts with, and another one may soon be where the old one was."""
        for _ in range(_ATTEMPTS):
            address = find()
            with contextlib.suppress(Unreadable):
                value = self.integer(address)
                if find() == address:
                    return value
        raise Unreadable("changes while it is read")

    def number(self, address: int) -> float:
        """The float at `address`."""
        if self.kind(address)[0] != "float":
            raise Unreadable("not a float")
        return float(struct.unpack("<d", self.read(address + 16, 8))[0])

    def length(self, address: int) -> int | None:
        """`len()` of the list, tuple, dict or set at `address`; None for anything else."""
        name, flags = self.kind(address)
        if flags & (LIST | TUPLE | DICT) or name in ("set", "frozenset"):
            length = self.word(address + (24 if name in ("set", "frozenset") else 16))
            if length > _MAX_LENGTH:
                raise Unreadable("not a container")
            return length
        return None

    def elements(self, address: int, limit: int) -> Iterator[int]:
        """Addresses of the first `limit` elements of the list or tuple at `address`."""
        flags = self.kind(address)[1]
        if not flags & (LIST | TUPLE):
            raise Unreadable("not a list")
        count = min(self.word(address + 16), limit)
        first = self.word(address + 24) if flags & LIST else address + self.layout.tuple_items
        yield from struct.unpack(f"<{count}Q", self.read(first, count * 8)) if count else ()

    def items(self, address: int) -> Iterator[tuple[int, int]]:
        """Addresses of the keys and values of the (combined) dict at `address`, in order."""
        keys = self._read_combined_keys(address)
        table = self.read(keys.first, keys.entries * keys.size)
        for entry in range(keys.entries):
            key, value = struct.unpack_from("<QQ", table, entry * keys.size + keys.skip)
            if key and value:
                yield key, value

    def _read_combined_keys(self, address: int) -> Keys:
        if not self.kind(address)[1] & DICT:
            raise Unreadable("not a dict")
        _used, _tag, at, values = struct.unpack("<4Q", self.read(address + 16, 32))
        if values:
            raise Unreadable("a split dict")
        return self.keys(at)

    def keys(self, address: int) -> Keys:
        """The dict keys (PyDictKeysObject) at `address`."""
        if self.layout.wide_keys:
            size, _lookup, _usable, count = struct.unpack("<4Q", self.read(address + 8, 32))
            header, stride, skip = 40, 24, 8
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4
            well_formed = 1 <= size <= 1 << 28 and count <= size
            index_bytes = size * width
        else:
            raw = self.read(address, 32)
            log_size, log_bytes, kind, count = raw[8], raw[9], raw[10], int.from_bytes(raw[24:32], "little")
            header, stride, skip = 32, *((24, 8) if kind == 0 else (16, 0))  # 0: any keys, 1 and 2: str alone
            # The keys of all empty dicts have one slot, and room for eight since 3.14.
            well_formed = kind <= 2 and log_bytes <= 30 and (0 <= log_bytes - log_size <= 2 or log_size == 0)
            size, width = 1 << min(log_size, 30), 1 << min(max(0, log_bytes - log_size), 2)
            index_bytes = 1 << min(log_bytes, 31)
        if not well_formed or count > _MAX_ENTRIES:
            raise Unreadable("not a dict of a known form")
        indices = address + header
        return Keys(count, indices + index_bytes, stride, skip, indices, size, width)

    def named_items(
        self, address: int, lengths: Container[int] | None = None, among: int = _MAX_ENTRIES
    ) -> Iterator[tuple[str, int]]:
        """The str keys among the first entries of a dict with the addresses of their values; other keys are skipped. With
        `lengths`, only keys of these lengths: skipping a key takes a fifth of the time of reading it."""
        for key, value in islice(self.items(address), among):
            try:
                if lengths is not None and int.from_bytes(os.pread(self._fd, 8, key + 16), "little") not in lengths:
                    continue
                yield self._read_name(key), value
            except (Unreadable, OSError, OverflowError):
                continue  # the process may change the dict meanwhile, so a key may be no address

    def find_named(self, address: int, names: Collection[str], among: int = _MAX_ENTRIES) -> dict[str, int]:
        """As `named_items`, but only `names`. Ends when it has all: of two thousand modules, `sys` is one of the first. If it is
        known how the process hashes, only the places of these names are read of a large dict."""
        if self.str_hash is not None and among == _MAX_ENTRIES and all(map(str.isascii, names)):
            keys = self._read_combined_keys(address)
            if keys.entries >= _MANY_ENTRIES * len(names):
                found = ((name, self._look_up(keys, name, self.str_hash.hash(name))) for name in names)
                return {name: value for name, value in found if value is not None}
        addresses: dict[str, int] = {}
        for name, value in self.named_items(address, {len(name) for name in names}, among):
            if name in names:
                addresses[name] = value
                if len(addresses) == len(names):
                    break
        return addresses

    def _look_up(self, keys: Keys, name: str, hashed: int) -> int | None:
        """The address of the value for a name; None if there is none. The order of the slots is that of Objects/dictobject.c."""
        slot, perturb = hashed & keys.slots - 1, hashed
        for _ in range(_MAX_PROBES):
            raw = self.read(keys.indices + slot * keys.width, keys.width)
            entry = int.from_bytes(raw, "little", signed=True)
            if entry == _EMPTY:
                return None
            if 0 <= entry < keys.entries:
                key, value = struct.unpack("<QQ", self.read(keys.first + entry * keys.size + keys.skip, 16))
                with contextlib.suppress(Unreadable):  # a key of another type
                    if key and value and self._read_name(key) == name:
                        return int(value)
            perturb >>= 5
            slot = slot * 5 + perturb + 1 & keys.slots - 1
        raise Unreadable("a dict of an unknown form")

    def namespace(self, module: int, names: Collection[str] = ()) -> dict[str, int]:
        """The variables of the module at address `module`: names and addresses. With `names`, only these."""
        whole = self.word(module + self._read_dict_offset(self.word(module + 8)))
        return self.find_named(whole, names) if names else dict(self.named_items(whole))

    def _read_dict_offset(self, type_address: int) -> int:
        offset = self.word(type_address + _TP_DICTOFFSET)
        if not 16 <= offset < 4096 or offset % 8:  # no dict, or an offset from the end of an object of variable size
            raise Unreadable("no attributes")
        return offset

    def attributes(self, instance: int) -> Iterator[tuple[str, int]]:
        """Names and addresses of the attributes of an instance of a Python class. Raises Unreadable for any other object.

        They are stored in a dict, or as an array of values whose names the class has (InternalDocs/object_layout.md,
        Include/internal/pycore_dict.h).
        """
        type_address = self.word(instance + 8)
        flags = self._read_flags(type_address)
        values = 0
        if not flags & MANAGED_DICT:
            if not flags & _HEAP_TYPE or flags & TYPE:
                raise Unreadable("a built-in object or a class")
            whole = self.word(instance + self._read_dict_offset(type_address))
        elif self.layout.instances == "before":
            values, whole = self.word(instance - 32), self.word(instance - 24)
        elif self.layout.instances == "tagged":
            either = self.word(instance - 24)
            values, whole = (either + 1, 0) if either & 1 else (0, either)  # PyDictOrValues: tagged by the lowest bit
        elif self.layout.instances == "inline":
            whole = self.word(instance - 24)
            values = instance + self.word(type_address + _TP_BASICSIZE) if flags & _INLINE_VALUES else 0
        else:
            raise Unreadable("attributes in an unknown place")
        if whole:
            at, values = self.word(whole + 32), self.word(whole + 40)
            if not values:
                yield from self.named_items(whole)
                return
        elif values and self.layout.cached_keys is not None:
            at = self.word(type_address + self.layout.cached_keys)
        else:
            return
        if self.layout.instances == "inline":
            values += 8  # the values follow four bytes of state and padding
        yield from self._read_shared(self.keys(at), values)

    def _read_shared(self, keys: Keys, values: int) -> Iterator[tuple[str, int]]:
        """Attributes whose names are in `keys` and whose values are an array of pointers at `values`."""
        entries = min(keys.entries, _MAX_ATTRIBUTES)
        if not entries:
            return
        table = self.read(keys.first, entries * keys.size)
        for index, value in enumerate(struct.unpack(f"<{entries}Q", self.read(values, entries * 8))):
            with contextlib.suppress(Unreadable):
                if value:
                    yield self._read_name(struct.unpack_from("<Q", table, index * keys.size + keys.skip)[0]), value

    def shared_names(self, keys: int) -> set[str]:
        """The names in the dict keys at address `keys`. Raises Unreadable if there are no dict keys."""
        dict_keys = self.keys(keys)
        return {
            self.text(self.word(dict_keys.first + index * dict_keys.size + dict_keys.skip))
            for index in range(min(dict_keys.entries, _MAX_ATTRIBUTES))
        }
