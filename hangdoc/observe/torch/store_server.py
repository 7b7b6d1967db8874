"""Reads the server of a TCPStore from the memory of its process: which keys its clients wait for.

Nothing in Python and no variable of the library leads to a server. But its thread begins in `BackgroundThread::run`, so the stack
of that thread has a pointer to it as long as it runs, and the classes of all objects can be told (`cpp_objects`).

The members of a server are not known by their offsets. It is the only object with five or more hash tables in a row, with the
port behind them (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp): the keys with their values; for each awaited key, the
clients; for each client, how many keys it awaits; all clients. What they hold must fit together: each key has its own hash, each
client is one of all clients and of the class of clients, and has a connection of libuv that belongs to this server. Values are
not read.
"""

import struct
from collections import Counter
from typing import NamedTuple

from hangdoc.observe.memory.cpp_objects import (
    SHARED_STRING_BYTES,
    STRING_BYTES,
    Classes,
    Table,
    entries_of,
    hash_of,
    read_string,
    tables_in,
)
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.torch_facts.cpp_names import STORE_CLIENT, STORE_SERVER, STORE_THREAD

_SERVER_BYTES, _LEAST_BYTES, _CLIENT_BYTES = 1_536, 1_296, 256
"""Of a server, with room for more members; of one of torch 2.5; and of a client, up to its connection."""
_TABLES = 5
"""Keys, awaited keys, numbers of awaited keys, clients, and clients that have not said yet who they are; in newer ones also
queues."""
_HIGHEST_PORT = 65_535
_BASES = (16, 24)
"""Where a client has its uv_tcp_t: behind a vtable and one or two words of reference counts."""
_TCP, _EVENTS_AT, _POLLIN, _MOST_EVENTS = 12, 176, 1, 0x4000
"""`type` of a uv_tcp_t; its `io_watcher` has the events that it waits for, those that the kernel was told of, and the file
descriptor (libuv's uv.h, uv/unix.h)."""
_MAX_KEYS, _MAX_AWAITED, _MAX_CLIENTS = 4_096, 1_024, 16_384
_MAX_KEY_BYTES = 8_192
"""torch's own limit."""
_TRIES = 3
"""A server changes its tables while they are read."""


class AwaitedName(NamedTuple):
    """A key that clients wait for."""

    name: bytes
    descriptors: tuple[int, ...]
    """File descriptors, in the server's process, of the connections to these clients."""


class Server(NamedTuple):
    """A server of a TCPStore."""

    address: int
    port: int
    keys: int
    """How many keys it has."""
    clients: int
    awaited: tuple[AwaitedName, ...]
    names: tuple[bytes, ...]
    """The keys that it has, if some are awaited, and if they are not too many to be read."""


def find_servers(memory: Memory, classes: Classes, stack: bytes) -> set[int]:
    """The addresses of the servers to which a thread's `stack` leads. Raises Overspent."""
    words = set(memoryview(stack[: len(stack) // 8 * 8]).cast("Q"))
    vtables = memory.read_many((word, 8) for word in words if not word % 8 and 4096 <= word < 1 << 47)
    servers = set()
    for (address, _), raw in vtables.items():
        name = classes.name_at(int.from_bytes(raw, "little"))
        if name == STORE_SERVER:
            servers.add(address)
        elif name == STORE_THREAD:
            holder = memory.word(address + 8)
            servers |= {holder} if classes.name_of(holder) == STORE_SERVER else set()
    return servers


def read_server(memory: Memory, classes: Classes, address: int) -> Server:
    """What the server at `address` holds now. Raises Unreadable if it has another form."""
    reason = Unreadable("a store of an unknown form")
    for _ in range(_TRIES):
        try:
            return _Reader(memory, classes, address).read()
        except Overspent:
            raise
        except Unreadable as error:
            reason = error
    raise reason


class _Reader:
    """One attempt."""

    def __init__(self, memory: Memory, classes: Classes, address: int) -> None:
        self._memory, self._classes, self._address = memory, classes, address
        if classes.name_of(address) != STORE_SERVER:
            raise Unreadable("no store")
        self._raw = self._read_members()

    def _read_members(self) -> bytes:
        try:
            return self._memory.read(self._address, _SERVER_BYTES)
        except Overspent:
            raise
        except Unreadable:  # it is at the end of what is mapped
            return self._memory.read(self._address, _LEAST_BYTES)

    def read(self) -> Server:
        tables, port = self._read_tables()
        keys, awaited, numbers, clients = tables[:4]
        members = {_pointer(raw, 8) for _, raw in entries_of(self._memory, clients, 16, _MAX_CLIENTS)}
        waiting: dict[int, int] = {}
        for _, raw in entries_of(self._memory, numbers, 24, _MAX_CLIENTS):
            waiting[_pointer(raw, 8)] = _pointer(raw, 16)
        named = self._read_awaited(awaited)
        listed = [client for clients_of_key in named.values() for client in clients_of_key]
        if not members.issuperset(listed) or not members.issuperset(waiting):
            raise Unreadable("clients of a store that it does not have")
        # A client that took something from a queue stays in the list of the queue, and a client that has got all its keys has 0.
        sure = {client for client, count in Counter(listed).items() if waiting.get(client) == count}
        descriptors = self._read_descriptors(sure)
        awaited_names = tuple(
            AwaitedName(name, tuple(sorted(descriptors[client] for client in set(who) & sure)))
            for name, who in named.items()
            if sure.intersection(who)
        )
        names = self._read_names(keys) if awaited_names else ()
        if self._read_members() != self._raw:
            raise Unreadable("a store that changes")
        return Server(self._address, port, keys.size, clients.size, awaited_names, names)

    def _read_tables(self) -> tuple[list[Table], int]:
        """The hash tables, in order, and the port behind them."""
        runs = tables_in(self._raw, self._address)
        long = [(tables, end) for tables, end in runs if len(tables) >= _TABLES and end + 4 <= len(self._raw)]
        if len(long) != 1:
            raise Unreadable("a store of an unknown form")
        (tables, end), *_ = long
        (port,) = struct.unpack_from("<i", self._raw, end)
        if not 0 < port <= _HIGHEST_PORT:
            raise Unreadable("a store without a port")
        return tables, port

    def _read_awaited(self, table: Table) -> dict[bytes, tuple[int, ...]]:
        """The clients that wait for each key."""
        clients_by_key = {}
        for name, raw in self._read_keys(table, _MAX_AWAITED):
            first, last, _ = struct.unpack_from("<3Q", raw)
            size = last - first
            if size % 8 or not 0 <= size <= 8 * _MAX_CLIENTS:
                raise Unreadable("not the clients of a store")
            clients_by_key[name] = struct.unpack(f"<{size // 8}Q", self._memory.read(first, size)) if size else ()
        return clients_by_key

    def _read_names(self, table: Table) -> tuple[bytes, ...]:
        return tuple(name for name, _ in self._read_keys(table, _MAX_KEYS)) if table.size <= _MAX_KEYS else ()

    def _read_keys(self, table: Table, most: int) -> list[tuple[bytes, bytes]]:
        """The keys of a hash table, and the std::vector behind each, of one form of std::string."""
        for copied in (False, True):
            size = SHARED_STRING_BYTES if copied else STRING_BYTES
            keys = []
            for address, raw in entries_of(self._memory, table, 8 + size + 24 + 8, most):
                try:
                    name = read_string(self._memory, raw, 8, address, _MAX_KEY_BYTES, copied=copied)
                except Overspent:
                    raise
                except Unreadable:
                    break
                if hash_of(name) != _pointer(raw, 8 + size + 24):
                    break
                keys.append((name, raw[8 + size : 8 + size + 24]))
            if len(keys) == table.size:
                return keys
        raise Unreadable("keys of a store that have another form")

    def _read_descriptors(self, clients: set[int]) -> dict[int, int]:
        """The file descriptor of each client."""
        descriptors = {}
        read = self._memory.read_many((client, _CLIENT_BYTES) for client in clients)
        for client in clients:
            raw = read.get((client, _CLIENT_BYTES))
            if raw is None or self._classes.name_at(_pointer(raw, 0)) != STORE_CLIENT:
                raise Unreadable("not the clients of a store")
            descriptors[client] = self._read_descriptor(client, raw)
        return descriptors

    def _read_descriptor(self, client: int, raw: bytes) -> int:
        for base in _BASES:
            itself, loop, kind = struct.unpack_from("<2QI", raw, base)
            wanted, registered, descriptor = struct.unpack_from("<IIi", raw, base + _EVENTS_AT)
            own = self._address < loop < self._address + _SERVER_BYTES
            listens = wanted == registered and wanted & _POLLIN and wanted < _MOST_EVENTS
            if itself == client and own and kind == _TCP and listens and descriptor > 0:
                return int(descriptor)
        raise Unreadable("not the clients of a store")


def _pointer(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 8], "little")
