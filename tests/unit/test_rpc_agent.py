"""The open calls of torch.distributed.rpc in memory: every form of an agent, and what is no form of it."""

import struct

import pytest

from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.rpc_agent import WORKER_BYTES, read_worker
from tests.unit.rpc_memory import AGENT, TABLES_AT, WORKER_CLASS, RpcMemory

CALLS = {"server": 3, "worker1": None, "a worker with a long name": 1, "idle": 0}


@pytest.mark.parametrize("counts", [8, 16])
@pytest.mark.parametrize("calls_at", [72, 80])
@pytest.mark.parametrize("copied_strings", [False, True])
def test_every_form(counts: int, calls_at: int, *, copied_strings: bool) -> None:
    made = RpcMemory(CALLS, copied_strings=copied_strings, counts=counts, calls_at=calls_at)
    assert made.read() == {"server": 3, "a worker with a long name": 1}


@pytest.mark.parametrize("counts", [8, 16])
@pytest.mark.parametrize("copied_strings", [False, True])
def test_the_name_of_a_worker(counts: int, *, copied_strings: bool) -> None:
    made = RpcMemory(CALLS, copied_strings=copied_strings, counts=counts)
    for name, entry in made.workers.items():
        with made.opened() as (memory, _):
            assert read_worker(memory, memory.read(entry + 16, WORKER_BYTES), entry + 16) == name


def test_an_agent_without_calls() -> None:
    assert RpcMemory({"alone": None}).read() == {}
    assert RpcMemory({}).read() == {}


@pytest.mark.parametrize("number", range(1, 4))
def test_a_member_between_the_tables_is_refused(number: int) -> None:
    with pytest.raises(Unreadable):
        RpcMemory(CALLS, between=number).read()


@pytest.mark.parametrize("word", [2, 4, 5, 6, 7, 8])
def test_a_worker_that_is_one_word_off_is_refused(word: int) -> None:
    """Except for one word more of counts, which is a form of it."""
    made = RpcMemory({"server": 1, "worker": 1})
    made.move(made.workers["worker"], 96, word)
    with pytest.raises(Unreadable):
        made.read()


def test_tables_that_do_not_fit_together_are_refused() -> None:
    for at in (16, 56 + 16, 112 + 16):  # a table without its entries
        made = RpcMemory(CALLS)
        made.put_table(AGENT + TABLES_AT + at - 16, [])
        if at == 16:
            assert made.read() == {}
        else:
            with pytest.raises(Unreadable):
                made.read()
    made = RpcMemory(CALLS)
    made.put(made.pipes["server"] + 8, struct.pack("<Q", 77))  # to a worker that is not there
    with pytest.raises(Unreadable, match="connections"):
        made.read()
    made = RpcMemory(CALLS)
    made.put(AGENT, struct.pack("<Q", made.classes[WORKER_CLASS]))
    with pytest.raises(Unreadable, match="no agent"):
        made.read()


def test_endless_calls_are_refused() -> None:
    made = RpcMemory({"server": 2})
    (first,) = struct.unpack("<Q", made.get(made.pipes["server"] + 96, 8))
    made.put(first, struct.pack("<Q", first))
    with pytest.raises(Unreadable, match="not a hash table"):
        made.read()
    made.put(made.pipes["server"] + 104, struct.pack("<Qf4xQ", 1 << 60, 1.0, 1 << 61))
    with pytest.raises(Unreadable, match="larger"):
        made.read()
