"""The memory of a made-up process with objects of C++."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from hangdoc.observe.memory.cpp_objects import Classes
from hangdoc.observe.memory.memory import Memory
from hangdoc.observe.memory.object_layout import Layout
from tests.hostile.fuzz.fake_memory import PAGE, memory_of

LIBRARY, HEAP = 0x10_0000, 0x200_0000


class MadeMemory:
    """Pages by address, which grow."""

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self._heap = HEAP

    def put(self, address: int, raw: bytes) -> None:
        """Write into the memory."""
        done = 0
        while done < len(raw):
            page = self.pages.setdefault((address + done) & -PAGE, bytearray(PAGE))
            at = (address + done) % PAGE
            part = raw[done : done + PAGE - at]
            page[at : at + len(part)] = part
            done += len(part)

    def get(self, address: int, size: int) -> bytes:
        """Read words from the memory."""
        return b"".join(
            bytes(self.pages[at & -PAGE][at % PAGE : at % PAGE + 8]) for at in range(address, address + size, 8)
        )

    def new(self, raw: bytes) -> int:
        """The address of a new object."""
        address, self._heap = self._heap, self._heap + -(-len(raw) // 16) * 16 + 16
        self.put(address, raw)
        return address

    def move(self, address: int, size: int, word: int) -> None:
        """Move the words of an object of `size` bytes from this one on by one."""
        raw = self.get(address, size)
        self.put(address + 8 * word, (bytes(8) + raw[8 * word :])[: size - 8 * word])

    def new_classes(self, *names: str) -> dict[str, int]:
        """The addresses of the vtables of new classes, in the library."""
        return {name: self._new_class(LIBRARY + 0x400 * index, name) for index, name in enumerate(names)}

    def _new_class(self, at: int, name: str) -> int:
        self.put(at, struct.pack("<qQ4Q", 0, at + 0x100, *[LIBRARY + 0x8000] * 4))
        self.put(at + 0x100, struct.pack("<QQ", LIBRARY + 0x8000, at + 0x200))
        self.put(at + 0x200, name.encode() + b"\0")
        return at + 16

    @contextmanager
    def opened(self) -> Iterator[tuple[Memory, Classes]]:
        """The memory of the process, and the classes of its library."""
        with memory_of(dict(self.pages)), Memory(1, Layout()) as memory:
            yield memory, Classes(memory, [(LIBRARY, LIBRARY + 0x1_0000)])

    def string(self, text: str, address: int, *, copied: bool = False) -> bytes:
        """A std::string that will be at `address`; `copied`: one of before C++11."""
        raw = text.encode()
        if copied:
            return struct.pack("<Q", self.new(struct.pack("<3Q", len(raw), len(raw), 0) + raw + b"\0") + 24)
        if len(raw) < 16:
            return struct.pack("<QQ16s", address + 16, len(raw), raw)
        return struct.pack("<QQQ8x", self.new(raw + b"\0"), len(raw), len(raw))

    def put_table(self, at: int, entries: Sequence[int]) -> None:
        """A hash table of these entries, which are linked."""
        for one, following in pairwise([*entries, 0]):
            self.put(one, struct.pack("<Q", following))
        size, buckets = (13, self.new(bytes(8 * 13))) if entries else (1, at + 48)
        first = entries[0] if entries else 0
        self.put(at, struct.pack("<4Qf4xQQ", buckets, size, first, len(entries), 1.0, max(13, len(entries)), 0))
