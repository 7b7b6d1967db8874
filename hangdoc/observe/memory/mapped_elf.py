"""Symbols of a file that a process has mapped, read from the memory of the process.

The file itself may be unreachable: deleted, replaced by an upgrade, or in a container with other paths. But the parts that
the dynamic linker needs (program headers, dynamic section, hash and symbol tables) are always mapped. Sources: elf(5), and
for DT_GNU_HASH glibc's elf/dl-lookup.c.
"""

import struct
from typing import NamedTuple

from hangdoc.observe.memory.memory import Memory, Unreadable

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_HEADER_BYTES, _SYMBOL_BYTES = 56, 24
_MAX_HEADERS = 256
_MAX_SYMBOLS = 100_000


class Symbol(NamedTuple):
    """A symbol: its absolute address, and the size in bytes of what it names."""

    address: int
    size: int


class MappedFile:
    """An ELF file. `base` is the address at which its first byte is mapped. Raises Unreadable for anything else."""

    def __init__(self, memory: Memory, base: int) -> None:
        self._memory = memory
        header = memory.read(base, 64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise Unreadable("not a 64-bit little-endian ELF file")
        (table,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
        if size != _HEADER_BYTES or count > _MAX_HEADERS:
            raise Unreadable("not an ELF file of a known form")
        segments = list(struct.iter_unpack("<IIQQ32x", memory.read(base + table, size * count)))
        first = next((vaddr for kind, _, offset, vaddr in segments if kind == _PT_LOAD and offset == 0), None)
        dynamic = next((vaddr for kind, _, _, vaddr in segments if kind == _PT_DYNAMIC), None)
        if first is None or dynamic is None:
            raise Unreadable("not a dynamic ELF file")
        self._bias = base - first
        self._tables = {}
        for index in range(256):
            tag, value = struct.unpack("<QQ", memory.read(self._bias + dynamic + index * 16, 16))
            if tag == 0:
                break
            # glibc replaces the offsets by addresses when it loads the file; musl does not.
            self._tables[tag] = value if value >= base else value + self._bias
        if not {_DT_STRTAB, _DT_SYMTAB} <= self._tables.keys():
            raise Unreadable("no symbols")

    def symbol(self, name: str) -> Symbol | None:
        """The exported symbol `name`; None if the file does not export it."""
        if _DT_GNU_HASH in self._tables:
            return self._find_by_gnu_hash(name, self._tables[_DT_GNU_HASH])
        if _DT_HASH in self._tables:
            _, count = struct.unpack("<II", self._memory.read(self._tables[_DT_HASH], 8))
            symbols = (self._read_entry(index, name) for index in range(min(count, _MAX_SYMBOLS)))
            return next((symbol for symbol in symbols if symbol), None)
        return None

    def _find_by_gnu_hash(self, name: str, table: int) -> Symbol | None:
        wanted = 5381
        for byte in name.encode():
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        bucket_count, first_hashed, bloom_words, _ = struct.unpack("<4I", self._memory.read(table, 16))
        if not bucket_count:
            return None
        buckets = table + 16 + 8 * bloom_words
        index = self._read_half(buckets + 4 * (wanted % bucket_count))
        for at in range(index, index + 1000) if index >= first_hashed else ():
            hashed = self._read_half(buckets + 4 * bucket_count + 4 * (at - first_hashed))
            if hashed | 1 == wanted | 1 and (symbol := self._read_entry(at, name)):
                return symbol
            if hashed & 1:  # the last of its bucket
                break
        return None

    def _read_half(self, address: int) -> int:
        return int.from_bytes(self._memory.read(address, 4), "little")

    def _read_entry(self, index: int, name: str) -> Symbol | None:
        raw = self._memory.read(self._tables[_DT_SYMTAB] + index * _SYMBOL_BYTES, _SYMBOL_BYTES)
        text, _info, _other, section, value, size = struct.unpack("<IBBHQQ", raw)
        if not section or self._memory.c_string(self._tables[_DT_STRTAB] + text) != name:
            return None  # section 0: an undefined symbol, which this file only uses
        return Symbol(self._bias + value, size)
