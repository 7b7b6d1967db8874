"""Objects of C++ in the memory of a process: their classes, texts and hash tables, as GCC and libstdc++ lay them out.

A class is told by its run-time type information: the first word of an object leads to its vtable, and the word before that to
the name (Itanium C++ ABI, 2.9.5). It is data that is always loaded, so it is also there in a library without symbols. An entry of
a std::unordered_map with a std::string as its key has the hash of the key (bits/hashtable_policy.h): a key that is read wrongly
is not taken for another one.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable

STRING_BYTES, SHARED_STRING_BYTES, TABLE_BYTES = 32, 8, 56
"""Of a std::string, of one of before C++11, and of a std::unordered_map or a std::unordered_set."""
_MAX_CLASS_NAME = 128
_LOWEST, _HIGHEST = 1 << 12, 1 << 47
_LOAD_FACTOR = 1.0
"""The default of a hash table."""
_IN_PLACE = 48
"""Where a hash table has its only bucket while it has no other ones."""
_WORD = (1 << 64) - 1
_MULTIPLIER, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907


class Classes:
    """The classes of objects whose vtables are in `libraries`: the bounds of their mappings, ascending."""

    def __init__(self, memory: Memory, libraries: Sequence[tuple[int, int]]) -> None:
        self._memory, self._libraries = memory, libraries
        self._names: dict[int, str | None] = {}

    def name_of(self, address: int) -> str | None:
        """The mangled name of the class of the object at `address`; None if there is none. Raises Overspent alone."""
        try:
            return self.name_at(self._memory.word(address)) if address % 8 == 0 else None
        except Overspent:
            raise
        except Unreadable:
            return None

    def name_at(self, vtable: int) -> str | None:
        """The same, of the class whose vtable is at `vtable`."""
        if vtable not in self._names:
            self._names[vtable] = self._read_name(vtable) if self._has(vtable) else None
        return self._names[vtable]

    def _has(self, address: int) -> bool:
        at = bisect_right(self._libraries, (address, _HIGHEST)) - 1
        return at >= 0 and address < self._libraries[at][1]

    def _read_name(self, vtable: int) -> str | None:
        try:
            offset, about = struct.unpack("<qQ", self._memory.read(vtable - 16, 16))
            return self._memory.c_string(self._memory.word(about + 8)).lstrip("*") if offset == 0 else None
        except Overspent:
            raise
        except Unreadable:
            return None


def read_string(memory: Memory, raw: bytes, at: int, address: int, most: int, *, copied: bool = False) -> bytes:
    """The first `most` bytes of the std::string at `at` in `raw`, which was read at `address`. `copied`: it is of before C++11.
    Raises Unreadable."""
    (characters,) = struct.unpack_from("<Q", raw, at)
    if copied:  # the length is in front of the characters
        return memory.read(characters, min(memory.word(characters - 24), most))
    (length,) = struct.unpack_from("<Q", raw, at + 8)
    if characters == address + at + 16:
        if length >= 16:
            raise Unreadable("not a std::string")
        return raw[at + 16 : at + 16 + length]
    return memory.read(characters, min(length, most))


def hash_of(text: bytes) -> int:
    """What std::hash makes of a std::string: MurmurHash64A (libsupc++/hash_bytes.cc)."""
    value = _SEED ^ len(text) * _MULTIPLIER & _WORD
    whole = len(text) & ~7
    for (part,) in struct.iter_unpack("<Q", text[:whole]):
        part = part * _MULTIPLIER & _WORD
        value = (value ^ (part ^ part >> 47) * _MULTIPLIER & _WORD) * _MULTIPLIER & _WORD
    if text[whole:]:
        value = (value ^ int.from_bytes(text[whole:], "little")) * _MULTIPLIER & _WORD
    value = (value ^ value >> 47) * _MULTIPLIER & _WORD
    return value ^ value >> 47


class Table(NamedTuple):
    """A std::unordered_map or std::unordered_set."""

    first: int
    """Address of its first entry; 0 if it has none."""
    size: int
    """How many entries it has."""


def parse_table(raw: bytes, at: int, address: int) -> Table | None:
    """The hash table at `at` in `raw`, which was read at `address`; None if there can't be one."""
    buckets, size, first, count, load, grows_at = struct.unpack_from("<4Qf4xQ", raw, at)
    in_place = buckets == address + at + _IN_PLACE
    if load != _LOAD_FACTOR or not size or in_place != (size == 1) or not _LOWEST <= buckets < _HIGHEST:
        return None
    if (first == 0) != (count == 0) or first % 8 or first >= _HIGHEST or count > max(size, grows_at):
        return None
    return Table(first, count)


def tables_in(raw: bytes, address: int) -> list[tuple[list[Table], int]]:
    """The hash tables among the members of the object at `address`, of which `raw` is read: those that follow each other
    together, with the offset behind the last one."""
    runs: list[tuple[list[Table], int]] = []
    at = 8
    while at + TABLE_BYTES <= len(raw):
        tables: list[Table] = []
        while at + TABLE_BYTES <= len(raw) and (table := parse_table(raw, at, address)):
            tables.append(table)
            at += TABLE_BYTES
        if tables:
            runs.append((tables, at))
        else:
            at += 8
    return runs


def entries_of(memory: Memory, table: Table, size: int, most: int) -> Iterator[tuple[int, bytes]]:
    """Address and `size` bytes of each entry of a hash table: a pointer to the next one, then what it holds. Raises Unreadable if
    it has more than `most`, or not as many as it says."""
    if table.size > most:
        raise Unreadable("a larger hash table")
    entry = table.first
    for _ in range(table.size):
        raw = memory.read(entry, size)
        yield entry, raw
        entry = int.from_bytes(raw[:8], "little")
    if entry:
        raise Unreadable("not a hash table")
