"""Reads Python objects in another process's memory, without stopping it.

Only layouts that CPython 3.11 to 3.13 share are used, and every read is checked and bounded: the process runs on
meanwhile, so whatever does not look right is left out. Sources: CPython's Include/object.h, Include/cpython/object.h,
Include/cpython/unicodeobject.h, Include/internal/pycore_dict.h, Include/cpython/longintrepr.h.
"""

import os
import struct
from collections.abc import Iterator
from types import TracebackType

# tp_flags bits of the fast subclass checks (Include/object.h)
LONG, LIST, TUPLE, BYTES, UNICODE, DICT = (1 << bit for bit in (24, 25, 26, 27, 28, 29))
_TP_NAME, _TP_FLAGS = 24, 168
_MAX_ENTRIES = 20_000
_MAX_TEXT = 4_096


class Unreadable(Exception):
    """Memory that can't be read, or does not hold what was expected."""


class Memory:
    """The memory of process `pid`, read through `<root>/PID/mem`; raises Unreadable where that is not allowed.

    `version` is the target's Python version as (major, minor).
    """

    def __init__(self, pid: int, version: tuple[int, int], root: str = "/proc") -> None:
        self.pid, self.version = pid, version
        self._types: dict[int, tuple[str, int]] = {}
        try:
            self._fd = os.open(f"{root}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"memory of pid {pid}: {error.strerror}") from error

    def __enter__(self) -> "Memory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`."""
        if not 4096 <= address < 1 << 47 or not 0 <= size <= 1 << 24:
            raise Unreadable("address out of range")
        try:
            raw = os.pread(self._fd, size, address)
        except OSError as error:
            raise Unreadable(str(error.strerror)) from error
        if len(raw) != size:
            raise Unreadable("short read")
        return raw

    def word(self, address: int) -> int:
        """The unsigned 64-bit word at `address`."""
        return int.from_bytes(self.read(address, 8), "little")

    def kind(self, address: int) -> tuple[str, int]:
        """(type name, tp_flags) of the object at `address`."""
        of = self.word(address + 8)
        flags = self._flags(of)
        return self._types[of][0], flags

    def _flags(self, of: int) -> int:
        if of not in self._types:
            self._types[of] = (self._c_string(self.word(of + _TP_NAME)), self.word(of + _TP_FLAGS))
        return self._types[of][1]

    def _c_string(self, address: int) -> str:
        out = b""
        while b"\0" not in out and len(out) < 128:
            out += self.read(address + len(out), 16)
        return out.split(b"\0", 1)[0].decode("utf-8", "replace")

    def text(self, address: int) -> str:
        """The str at `address`, cut at 4096 characters."""
        try:
            head = self.read(address, 112)  # one read serves most names
        except Unreadable:
            head = self.read(address, 40)
        if not self._flags(int.from_bytes(head[8:16], "little")) & UNICODE:
            raise Unreadable("not a str")
        length = int.from_bytes(head[16:24], "little")
        state = int.from_bytes(head[32:36], "little")
        width, compact, ascii_only = (state >> 2) & 7, (state >> 5) & 1, (state >> 6) & 1
        if not compact or width not in (1, 2, 4):
            raise Unreadable("not a compact str")
        base = 48 if self.version == (3, 11) else 40  # 3.12 dropped wstr
        offset = base if ascii_only else base + (24 if self.version == (3, 11) else 16)
        size = min(length, _MAX_TEXT) * width
        raw = head[offset : offset + size]
        if len(raw) < size:
            raw = self.read(address + offset, size)
        return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "replace")

    def data(self, address: int) -> bytes:
        """The bytes object at `address`, cut at 4096."""
        if not self.kind(address)[1] & BYTES:
            raise Unreadable("not bytes")
        return self.read(address + 32, min(self.word(address + 16), _MAX_TEXT))

    def integer(self, address: int) -> int:
        """The int (or bool) at `address`, if it has at most two digits (60 bits)."""
        if not self.kind(address)[1] & LONG:
            raise Unreadable("not an int")
        tag, digits = struct.unpack("<q8s", self.read(address + 16, 16))
        if self.version >= (3, 12):
            size, sign = tag >> 3, 1 - (tag & 3)
        else:
            size, sign = abs(tag), (tag > 0) - (tag < 0)
        if size > 2:
            raise Unreadable("a larger int")
        low, high = struct.unpack("<II", digits)
        value = (low if size else 0) + ((high << 30) if size > 1 else 0)
        return int(sign * value)

    def length(self, address: int) -> int | None:
        """`len()` of the list, tuple, dict or set at `address`; None for anything else."""
        name, flags = self.kind(address)
        if flags & (LIST | TUPLE | DICT) or name in ("set", "frozenset"):
            return self.word(address + (24 if name in ("set", "frozenset") else 16))
        return None

    def elements(self, address: int, most: int) -> Iterator[int]:
        """Addresses of the first elements of the list or tuple at `address`."""
        flags = self.kind(address)[1]
        if not flags & (LIST | TUPLE):
            raise Unreadable("not a list")
        count = min(self.word(address + 16), most)
        first = self.word(address + 24) if flags & LIST else address + 24
        yield from struct.unpack(f"<{count}Q", self.read(first, count * 8)) if count else ()

    def items(self, address: int) -> Iterator[tuple[int, int]]:
        """Addresses of the keys and values of the (combined) dict at `address`, in order."""
        if not self.kind(address)[1] & DICT:
            raise Unreadable("not a dict")
        _used, _tag, keys, values = struct.unpack("<4Q", self.read(address + 16, 32))
        if values:
            raise Unreadable("a split dict")
        header = self.read(keys, 32)
        index_bytes, kind = header[9], header[10]
        entries = int.from_bytes(header[24:32], "little")
        if kind > 1 or index_bytes > 30 or entries > _MAX_ENTRIES:
            raise Unreadable("not a dict of a known form")
        size, skip = (24, 8) if kind == 0 else (16, 0)
        table = self.read(keys + 32 + (1 << index_bytes), entries * size)
        for entry in range(entries):
            key, value = struct.unpack_from("<QQ", table, entry * size + skip)
            if key and value:
                yield key, value

    def named_items(self, address: int) -> Iterator[tuple[str, int]]:
        """The str keys of a dict with the addresses of their values; other keys are passed over."""
        for key, value in self.items(address):
            try:
                yield self.text(key), value
            except Unreadable:
                continue
