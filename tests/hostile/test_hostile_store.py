"""A process that forges the TCPStore in its memory: it spoils only its own evidence, within its budget."""

import struct
from collections.abc import Callable, Iterator

import pytest

from hangdoc.observe.kernel.system_calls import stack_pointer
from hangdoc.observe.memory.cpp_objects import Classes, hash_of
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.torch.libraries import mapped_memory
from hangdoc.observe.torch.store_server import find_servers, read_server
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import StoreServers, Unavailable
from hangdoc.torch_facts import thread_names
from tests.hostile.forged_process import ForgedProcess
from tests.hostile.fuzz.bounds import bounded
from tests.live.served import read_stores, serving, store_of
from tests.unit.made_memory import HEAP
from tests.unit.store_memory import SERVER, TABLES_AT, THREAD_CLASS, StoreMemory

NOWHERE = 0x6666_0000_0000
AWAITED = TABLES_AT + 56
COUNT = 24
"""Of a hash table: its number of entries, behind buckets, their number and the first entry."""
_CLIENTS = 20


class Victim(ForgedProcess):
    """A process that serves a store, and whose memory the test changes and restores."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        proc = ProcFS()
        mapped = mapped_memory(proc, pid)
        with Memory(pid, Layout()) as memory:
            (tid,) = (t for t in proc.tids(pid) if proc.stat(f"{pid}/task/{t}").name.startswith(thread_names.STORE))
            top = stack_pointer(proc, f"{pid}/task/{tid}")
            assert top is not None
            end = mapped.end_of(top)
            assert end is not None
            self.top, self.stack = top, memory.read(top, end - top)
            (self.server,) = find_servers(memory, Classes(memory, mapped.torch), self.stack)
            self.members = memory.read(self.server, 1_296)
            (self.entry,) = struct.unpack_from("<Q", self.members, AWAITED + 16)


@pytest.fixture(scope="module")
def victim(can_attach: None) -> Iterator[Victim]:
    with serving(_CLIENTS) as pid:
        yield Victim(pid)


@pytest.fixture(scope="module")
def good(can_attach: None) -> Iterator[int]:
    with serving(2) as pid:
        yield pid


def circle(victim: Victim) -> dict[int, bytes]:
    """A key that is its own successor, of a thousand."""
    return {
        victim.server + AWAITED + COUNT: struct.pack("<Qf4xQ", 1_000, 1.0, 2_000),
        victim.entry: struct.pack("<Q", victim.entry),
    }


def huge(victim: Victim) -> dict[int, bytes]:
    """As many entries as there are numbers."""
    return {victim.server + AWAITED + COUNT: struct.pack("<Qf4xQ", 1 << 62, 1.0, 1 << 63)}


def entries_nowhere(victim: Victim) -> dict[int, bytes]:
    return {victim.server + AWAITED + 16: struct.pack("<Q", NOWHERE)}


def vast_key(victim: Victim) -> dict[int, bytes]:
    """A key of an exabyte."""
    return {victim.entry + 8: struct.pack("<QQ", victim.server, 1 << 60)}


def vast_clients(victim: Victim) -> dict[int, bytes]:
    return {victim.entry + 40: struct.pack("<3Q", victim.server, victim.server + (1 << 40), 0)}


def not_clients(victim: Victim) -> dict[int, bytes]:
    """The server itself waits."""
    return {victim.entry + 40: struct.pack("<3Q", victim.server, victim.server + 8, 0)}


def no_tables(victim: Victim) -> dict[int, bytes]:
    return {victim.server + TABLES_AT: bytes(288)}


def hundreds_of_tables(victim: Victim) -> dict[int, bytes]:
    table = struct.pack("<4Qf4xQQ", victim.server, 13, 0, 0, 1.0, 13, 0)
    return {victim.server + 24: (table * 30)[:1_260]}


ATTACKS = (circle, huge, entries_nowhere, vast_key, vast_clients, not_clients, no_tables, hundreds_of_tables)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_forged_store_beside_a_good_one(
    attack: Callable[[Victim], dict[int, bytes]], victim: Victim, good: int
) -> None:
    with victim.forged(attack(victim)), bounded(seconds=3.0):
        found = read_stores(victim.pid, good)
    assert isinstance(found[victim.pid], Unavailable)
    seen = found[good]
    assert isinstance(seen, StoreServers)
    assert {key.name for key in seen.servers[0].awaited} == {"/own/0", "/own/1", "/shared"}
    assert len(store_of(victim.pid).awaited) == _CLIENTS + 1


def test_descriptors_of_files_that_are_no_sockets(victim: Victim) -> None:
    """A client whose connection is said to be another file."""
    (number,) = struct.unpack_from("<Q", victim.members, AWAITED + 112 + 16)
    with Memory(victim.pid, Layout()) as memory:
        (client,) = struct.unpack("<Q", memory.read(number + 8, 8))
        base = 16 if memory.word(client + 16) == client else 24
    with victim.forged({client + base + 184: struct.pack("<i", 1 << 30)}):
        shared = next(key for key in store_of(victim.pid).awaited if key.name == "/shared")
    assert len(shared.sockets) == _CLIENTS - 1


def test_a_stack_of_nothing_but_stores() -> None:
    """Thirty thousand words that lead to objects of the class of a store's thread."""
    made = StoreMemory(awaited={"/key": (0,)})
    vtable = made.classes[THREAD_CLASS]
    many = [made.new(struct.pack("<QQ", vtable, SERVER + 8 * number)) for number in range(30_000)]
    stack = struct.pack(f"<{len(many)}Q", *many)
    with bounded(seconds=3.0), made.opened() as (memory, classes):
        assert find_servers(memory, classes, stack) == {SERVER}


def test_as_many_and_as_long_keys_as_fit() -> None:
    """Each of 5,000 awaited keys is longer than torch allows."""
    made = StoreMemory(keys=[], awaited={f"/{'k' * 20_000}{number}": (0,) for number in range(900)}, clients=1)
    with bounded(seconds=5.0), pytest.raises(Unreadable):
        made.read()
    made = StoreMemory(keys=[], awaited={f"/{number}": (0,) for number in range(1_025)}, clients=1)
    with bounded(seconds=3.0), pytest.raises(Unreadable, match="larger"):
        made.read()
    made = StoreMemory(keys=[f"/{number}" for number in range(5_000)], awaited={"/key": (0,)})
    with bounded(seconds=3.0):
        server = made.read()
    assert (server.keys, server.names) == (5_000, ())


def test_a_server_of_servers() -> None:
    """Its clients and its keys are entries of each other."""
    made = StoreMemory(awaited={"/key": (0,)})
    entry = made.first_awaited()
    made.put(entry + 8, struct.pack("<QQ", HEAP, 8) + bytes(16) + struct.pack("<3Q", entry, entry + 8, 0))
    made.put(entry + 64, struct.pack("<Q", hash_of(bytes(made.pages[HEAP][:8]))))
    with made.opened() as (memory, classes), pytest.raises(Unreadable):
        read_server(memory, classes, SERVER)
