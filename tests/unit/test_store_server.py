"""The server of a TCPStore in memory: every form of it, and what is no form of it."""

import struct

import pytest

from hangdoc.observe.memory.cpp_objects import hash_of
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.store_server import AwaitedName, find_servers
from tests.unit.store_memory import CLIENT_CLASS, SERVER, SERVER_CLASS, StoreMemory

WAITING = {"/default_pg/0//cpu//0/2": (0, 1), "/short": (2,), "/a/b": (0,)}
FORMS = {
    "2.13 and 2.14": StoreMemory(awaited=WAITING),
    "2.5, shared strings": StoreMemory(awaited=WAITING, copied_strings=True, queues=False),
    "2.5, strings of the new form": StoreMemory(awaited=WAITING, queues=False),
    "clients with two words of counts": StoreMemory(awaited=WAITING, client_base=24),
    "another place": StoreMemory(awaited=WAITING, before=8),
}


def test_hashes_are_those_of_libstdcxx() -> None:
    """Read off entries in a running server."""
    assert hash_of(b"/default_pg/0//cpu//0/2") == 0x5B0FACF0861818D3
    assert hash_of(b"init/") == 0xF2DCF67917017DBD


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str) -> None:
    made = FORMS[form]
    server = made.read()
    assert (server.address, server.port, server.keys, server.clients) == (SERVER, 29_500, 3, 3)
    assert set(server.awaited) == {
        AwaitedName(b"/default_pg/0//cpu//0/2", (100, 101)),
        AwaitedName(b"/short", (102,)),
        AwaitedName(b"/a/b", (100,)),
    }
    assert set(server.names) == {name.encode() for name in made.keys}


def test_a_store_for_which_nobody_waits() -> None:
    server = StoreMemory().read()
    assert (server.awaited, server.names, server.keys) == ((), (), 3)
    empty = StoreMemory(keys=(), clients=0).read()
    assert (empty.awaited, empty.keys, empty.clients) == ((), 0, 0)


def test_clients_that_wait_no_longer() -> None:
    """A client that has got all its keys keeps a 0. One that took from a queue is still in the list of the queue: what it waits
    for now is not sure."""
    made = StoreMemory(awaited={"/queue": (0, 1), "/key": (1,)}, numbers={0: 0, 1: 1, 2: 0})
    assert made.read().awaited == ()
    made = StoreMemory(awaited={"/queue": (0,), "/key": (1,)}, numbers={0: 0, 1: 1, 2: 0})
    assert made.read().awaited == (AwaitedName(b"/key", (101,)),)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_member_between_the_tables_is_refused(number: int) -> None:
    with pytest.raises(Unreadable, match="form"):
        StoreMemory(awaited=WAITING, between=number).read()


@pytest.mark.parametrize("port", [0, -1, 65_536, 1 << 30])
def test_no_port_behind_the_tables_is_refused(port: int) -> None:
    with pytest.raises(Unreadable):
        StoreMemory(awaited=WAITING, port=port).read()


@pytest.mark.parametrize("word", range(9))
@pytest.mark.parametrize("copied_strings", [False, True])
def test_an_entry_that_is_one_word_off_is_refused(word: int, *, copied_strings: bool) -> None:
    made = StoreMemory(awaited={"/default_pg/0//cpu//0/2": (0, 1)}, copied_strings=copied_strings)
    if word < (6 if copied_strings else 9):
        made.move(made.first_awaited(), 80, word)
        with pytest.raises(Unreadable):
            made.read()


@pytest.mark.parametrize("word", range(26))
def test_a_client_that_is_one_word_off_is_refused(word: int) -> None:
    """Except for one word more of counts in front of its connection, which is a form of it."""
    made = StoreMemory(awaited={"/key": (0, 1)})
    made.move(made.client[0], 256, word)
    if word in (1, 2):
        assert made.read().awaited == (AwaitedName(b"/key", (100, 101)),)
    else:
        with pytest.raises(Unreadable, match="not the clients"):
            made.read()


def test_keys_whose_hash_is_another_are_refused() -> None:
    made = StoreMemory(awaited={"/key": (0,)})
    made.put(made.first_awaited() + 24, b"/kez")
    with pytest.raises(Unreadable, match="another form"):
        made.read()


def test_clients_of_another_server_or_class_are_refused() -> None:
    for at, raw in ((0, struct.pack("<Q", SERVER)), (24, struct.pack("<Q", SERVER + (1 << 20))), (32, b"\7")):
        made = StoreMemory(awaited={"/key": (0,)})
        made.put(made.client[0] + at, raw)
        with pytest.raises(Unreadable, match="not the clients"):
            made.read()


def test_an_object_of_another_class_is_no_server() -> None:
    made = StoreMemory(awaited=WAITING)
    made.put(SERVER, struct.pack("<Q", made.classes[CLIENT_CLASS]))
    with made.opened() as (memory, classes):
        assert find_servers(memory, classes, made.stack) == set()
    made.put(SERVER, struct.pack("<Q", made.classes[SERVER_CLASS] + (1 << 40)))  # not in torch's library
    with made.opened() as (memory, classes):
        assert find_servers(memory, classes, made.stack) == set()
