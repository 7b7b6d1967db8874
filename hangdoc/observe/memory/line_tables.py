"""Line numbers of instructions, from the location tables of CPython's code objects.

Sources: Objects/lnotab_notes.txt (3.10), InternalDocs/code_objects.md (since 3.11).
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

_NO_LINE_3_10 = 128
_ENTRY = 128
"""Only the first byte of an entry has this bit."""
_LONG, _NO_COLUMNS, _NO_LOCATION = 14, 13, 15
_ONE_LINE = (10, 11, 12)
_MORE_BITS, _BITS = 64, 63
_MAX_VARINT = 7
"""Bytes: no line number has more than 32 bits."""
_MAX_CACHED, _MAX_CACHED_BYTES = 1024, 4096
"""Lines that are remembered, and the size of their tables."""


class _Entry(NamedTuple):
    units: int
    """Of the instructions that it is about."""
    ahead: int
    """Lines from the entry before."""
    has_line: bool


def line_at(version: tuple[int, int], table: bytes, first_line: int, unit: int) -> int | None:
    """The line of the code unit number `unit` in a code object that begins at `first_line`; None if it has none, as instructions
    that only the compiler made. `version` is the interpreter's."""
    line, has_line = _look_up(version, table, first_line, unit)
    return line if has_line else None


def line_before(version: tuple[int, int], table: bytes, first_line: int, unit: int) -> int:
    """The same. Of an instruction without a line, or of a damaged table, the line before it."""
    return _look_up(version, table, first_line, unit)[0]


def _look_up(version: tuple[int, int], table: bytes, first_line: int, unit: int) -> tuple[int, bool]:
    find = _find_cached_line if len(table) <= _MAX_CACHED_BYTES else _find_line
    return find(version, table, first_line, unit)


def _find_line(version: tuple[int, int], table: bytes, line: int, unit: int) -> tuple[int, bool]:
    end = 0
    for entry in _entries_3_10(table) if version < (3, 11) else _entries(table):
        line, end = line + entry.ahead, end + entry.units
        if unit < end:
            return line, entry.has_line
    return line, False


# The ranks of a run wait at the same instructions, and a rank at rest stays there.
_find_cached_line = functools.lru_cache(_MAX_CACHED)(_find_line)


def _entries_3_10(table: bytes) -> Iterator[_Entry]:
    """Pairs of bytes: how many bytes of instructions, and by how many lines the line changes."""
    for size, ahead in zip(table[::2], table[1::2], strict=False):
        has_line = ahead != _NO_LINE_3_10
        yield _Entry(size // 2, (ahead - 256 if ahead > _NO_LINE_3_10 else ahead) if has_line else 0, has_line)


def _entries(table: bytes) -> Iterator[_Entry]:
    """A byte with a kind and the number of code units, what the kind says of the line, and columns."""
    at = 0
    while at < len(table):
        units, kind = (table[at] & 7) + 1, table[at] >> 3 & 15
        at += 1
        ahead = kind - _ONE_LINE[0] if kind in _ONE_LINE else 0
        if kind in (_NO_COLUMNS, _LONG):
            ahead = _signed(table[at : at + _MAX_VARINT])
        while at < len(table) and not table[at] & _ENTRY:
            at += 1
        yield _Entry(units, ahead, kind != _NO_LOCATION)


def _signed(varint: bytes) -> int:
    """A number of 6 bits a byte, lowest first; the lowest bit is its sign."""
    value = 0
    for index, byte in enumerate(varint):
        value |= (byte & _BITS) << 6 * index
        if not byte & _MORE_BITS:
            break
    return -(value >> 1) if value & 1 else value >> 1
