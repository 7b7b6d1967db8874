"""A made-up process that serves a TCPStore: a library, the stack of the store's thread, and the server with its tables."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hangdoc.observe.memory.cpp_objects import hash_of
from hangdoc.observe.torch.store_server import Server, find_servers, read_server
from tests.unit.made_memory import LIBRARY, MadeMemory

SERVER = 0x100_0000
SERVER_CLASS, CLIENT_CLASS = "N4c10d6detail16LibUVStoreDaemonE", "*N4c10d6detail8UvClientE"
THREAD_CLASS = "NSt6thread11_State_implINS_8_InvokerISt5tupleIJMN4c10d6detail16BackgroundThreadEFvvEPS5_EEEEEE"
TABLES_AT = 1_008
"""In torch 2.5 to 2.14."""


@dataclass
class StoreMemory(MadeMemory):
    """`awaited` are the clients that wait for each key, by their numbers; each has the file descriptor 100 + its number."""

    keys: Sequence[str] = ("/default_pg/0//cpu//0/0", "/default_pg/0//cpu//0/1", "init/")
    awaited: Mapping[str, Sequence[int]] = field(default_factory=dict)
    clients: int = 3
    copied_strings: bool = False
    queues: bool = True
    """Newer servers have a table of them."""
    before: int = 0
    """Bytes of a member that torch does not have, before the tables."""
    between: int | None = None
    """Number of the table before which there is a member of 8 bytes that torch does not have."""
    client_base: int = 16
    port: int = 29_500
    numbers: Mapping[int, int] | None = None
    """How many keys each client awaits, if that is not as many as it is listed for."""

    def __post_init__(self) -> None:
        super().__init__()
        self.classes = self.new_classes(SERVER_CLASS, CLIENT_CLASS, THREAD_CLASS)
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
            self.put_table(SERVER + at, entries)
            at += 56
        self.put(SERVER + at, struct.pack("<i", self.port))
        state = self.new(struct.pack("<4Q", self.classes[THREAD_CLASS], SERVER, 0x1234, 0))
        self.stack = struct.pack("<6Q", 0, 0x7FFF_0000_0000, state, LIBRARY, 0xFFFF_FFFF_FFFF_FFFF, 3)

    def first_awaited(self) -> int:
        """The address of the entry of the first awaited key."""
        return int.from_bytes(self.get(SERVER + TABLES_AT + self.before + 56 + 16, 8), "little")

    def read(self) -> Server:
        """What hangdoc reads, from the stack of the thread on."""
        with self.opened() as (memory, classes):
            (address,) = find_servers(memory, classes, self.stack)
            return read_server(memory, classes, address)

    def _vector(self, words: Sequence[int]) -> bytes:
        first = self.new(struct.pack(f"<{len(words)}Q", *words))
        return struct.pack("<3Q", first, *[first + 8 * len(words)] * 2)

    def _named(self, values: Mapping[str, bytes]) -> list[int]:
        """The entries of a table with texts as keys."""
        entries = []
        for name, value in values.items():
            raw = name.encode()
            address = self.new(bytes(80))
            text = self.string(name, address + 8, copied=self.copied_strings)
            self.put(address, struct.pack("<Q", 0) + text + value + struct.pack("<Q", hash_of(raw)))
            entries.append(address)
        return entries
