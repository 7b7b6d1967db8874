"""A made-up process that serves a TCPStore: a library, the stack of the store's thread, and the server with its tables."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from hangdoc.observe.layout import Layout
from hangdoc.observe.memory import Memory
from hangdoc.observe.torch.cpp_objects import Classes, hash_of
from hangdoc.observe.torch.store_server import Server, find_servers, read_server
from tests.hostile.fuzz.fake_memory import PAGE, memory_of

LIBRARY, SERVER, HEAP = 0x10_0000, 0x100_0000, 0x200_0000
SERVER_CLASS, CLIENT_CLASS = "N4c10d6detail16LibUVStoreDaemonE", "*N4c10d6detail8UvClientE"
THREAD_CLASS = "NSt6thread11_State_implINS_8_InvokerISt5tupleIJMN4c10d6detail16BackgroundThreadEFvvEPS5_EEEEEE"
TABLES_AT = 1_008
"""In torch 2.5 to 2.14."""


@dataclass
class StoreMemory:
    """`awaited` are the clients that wait for each key, by their numbers; each has the file descriptor 100 + its number."""

    keys: Sequence[str] = ("/default_pg/0//cpu//0/0", "/default_pg/0//cpu//0/1", "init/")
    awaited: Mapping[str, Sequence[int]] = field(default_factory=dict)
    clients: int = 3
    copied_strings: bool = False
    queues: bool = True
    """Since torch 2.7, a server has a table of them."""
    before: int = 0
    """Bytes of a member that torch does not have, before the tables."""
    between: int | None = None
    """Number of the table before which there is a member of 8 bytes that torch does not have."""
    client_base: int = 16
    port: int = 29_500
    numbers: Mapping[int, int] | None = None
    """How many keys each client awaits, if that is not as many as it is listed for."""
    pages: dict[int, bytearray] = field(default_factory=dict)
    _heap: int = HEAP

    def __post_init__(self) -> None:
        self.classes = {
            name: self._class(index, name) for index, name in enumerate((SERVER_CLASS, CLIENT_CLASS, THREAD_CLASS))
        }
        self.client = [self.new(bytes(512)) for _ in range(self.clients)]
        for number, address in enumerate(self.client):
            base = self.client_base
            self.put(address, struct.pack("<Q", self.classes[CLIENT_CLASS]))
            self.put(address + base, struct.pack("<QQI", address, SERVER + 24, 12))
            self.put(address + base + 176, struct.pack("<IIi", 1, 1, 100 + number))
        listed: dict[int, int] = {}
        for clients in self.awaited.values():
            for client in clients:
                listed[client] = listed.get(client, 0) + 1
        pointers = {
            key: self._vector([self.client[client] for client in clients]) for key, clients in self.awaited.items()
        }
        numbers = listed if self.numbers is None else self.numbers
        tables: list[list[int]] = [
            self._named({key: self._vector([7]) for key in self.keys}),
            self._named(pointers),
            [self.new(struct.pack("<QQQ", 0, self.client[one], count)) for one, count in numbers.items()],
            [self.new(struct.pack("<QQ", 0, address)) for address in self.client],
            *[[]] * (2 if self.queues else 1),
        ]
        self.put(SERVER, struct.pack("<Q", self.classes[SERVER_CLASS]).ljust(2_048, b"\0"))
        at = TABLES_AT + self.before
        for number, entries in enumerate(tables):
            at += 8 * (number == self.between)
            self._table(SERVER + at, entries)
            at += 56
        self.put(SERVER + at, struct.pack("<i", self.port))
        state = self.new(struct.pack("<4Q", self.classes[THREAD_CLASS], SERVER, 0x1234, 0))
        self.stack = struct.pack("<6Q", 0, 0x7FFF_0000_0000, state, LIBRARY, 0xFFFF_FFFF_FFFF_FFFF, 3)

    def put(self, address: int, raw: bytes) -> None:
        """Write into the memory, which grows."""
        done = 0
        while done < len(raw):
            page = self.pages.setdefault((address + done) & -PAGE, bytearray(PAGE))
            at = (address + done) % PAGE
            part = raw[done : done + PAGE - at]
            page[at : at + len(part)] = part
            done += len(part)

    def new(self, raw: bytes) -> int:
        """The address of a new object."""
        address, self._heap = self._heap, self._heap + -(-len(raw) // 16) * 16 + 16
        self.put(address, raw)
        return address

    def move(self, address: int, size: int, word: int) -> None:
        """Move the words of an object of `size` bytes from this one on by one."""
        raw = b"".join(
            bytes(self.pages[at & -PAGE][at % PAGE : at % PAGE + 8]) for at in range(address, address + size, 8)
        )
        self.put(address + 8 * word, (bytes(8) + raw[8 * word :])[: size - 8 * word])

    def first_awaited(self) -> int:
        """The address of the entry of the first awaited key."""
        at = (SERVER + TABLES_AT + self.before + 56 + 16) % PAGE
        return int.from_bytes(self.pages[SERVER & -PAGE][at : at + 8], "little")

    @contextmanager
    def opened(self) -> Iterator[tuple[Memory, Classes]]:
        """The memory of the process, and its classes."""
        with memory_of(dict(self.pages)), Memory(1, Layout()) as memory:
            yield memory, Classes(memory, [(LIBRARY, LIBRARY + 0x1_0000)])

    def read(self) -> Server:
        """What hangdoc reads, from the stack of the thread on."""
        with self.opened() as (memory, classes):
            (address,) = find_servers(memory, classes, self.stack)
            return read_server(memory, classes, address)

    def _class(self, index: int, name: str) -> int:
        """The address of the vtable of a class in the library."""
        at = LIBRARY + 0x400 * index
        self.put(at, struct.pack("<qQ4Q", 0, at + 0x100, *[LIBRARY + 0x8000] * 4))
        self.put(at + 0x100, struct.pack("<QQ", LIBRARY + 0x8000, at + 0x200))
        self.put(at + 0x200, name.encode() + b"\0")
        return at + 16

    def _vector(self, words: Sequence[int]) -> bytes:
        first = self.new(struct.pack(f"<{len(words)}Q", *words))
        return struct.pack("<3Q", first, *[first + 8 * len(words)] * 2)

    def _named(self, values: Mapping[str, bytes]) -> list[int]:
        """The entries of a table with texts as keys."""
        entries = []
        for name, value in values.items():
            raw = name.encode()
            address = self.new(bytes(80))
            if self.copied_strings:
                text = struct.pack("<Q", self.new(struct.pack("<3Q", len(raw), len(raw), 0) + raw + b"\0") + 24)
            elif len(raw) < 16:
                text = struct.pack("<QQ16s", address + 24, len(raw), raw)
            else:
                text = struct.pack("<QQQ8x", self.new(raw + b"\0"), len(raw), len(raw))
            self.put(address, struct.pack("<Q", 0) + text + value + struct.pack("<Q", hash_of(raw)))
            entries.append(address)
        return entries

    def _table(self, at: int, entries: Sequence[int]) -> None:
        """A hash table of these entries, which are linked."""
        for one, following in pairwise([*entries, 0]):
            self.put(one, struct.pack("<Q", following))
        size, buckets = (13, self.new(bytes(8 * 13))) if entries else (1, at + 48)
        first = entries[0] if entries else 0
        self.put(at, struct.pack("<4Qf4xQQ", buckets, size, first, len(entries), 1.0, max(13, len(entries)), 0))
