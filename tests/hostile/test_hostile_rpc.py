"""A process that forges its agent of torch.distributed.rpc: reading it ends within the budget."""

import struct

import pytest

from hangdoc.observe.memory.memory import Unreadable
from tests.hostile.fuzz.bounds import bounded
from tests.unit.rpc_memory import AGENT, TABLES_AT, RpcMemory


def test_each_of_many_connections_has_as_many_calls_as_fit() -> None:
    made = RpcMemory({f"worker{number}": 1 for number in range(200)})
    for pipe in made.pipes.values():
        (first,) = struct.unpack("<Q", made.get(pipe + 96, 8))
        made.put(first, struct.pack("<Q", first))
        made.put(pipe + 104, struct.pack("<Qf4xQ", 65_536, 1.0, 1 << 20))
    with bounded(seconds=3.0), pytest.raises(Unreadable):
        made.read()


@pytest.mark.parametrize("table", range(4))
def test_tables_without_end(table: int) -> None:
    at = AGENT + TABLES_AT + 56 * table
    for size in (1, 4_096, 1 << 60):
        made = RpcMemory({f"worker{number}": 1 for number in range(5)})
        (first,) = struct.unpack("<Q", made.get(at + 16, 8))
        made.put(first, struct.pack("<Q", first))
        made.put(at + 24, struct.pack("<Qf4xQ", size, 1.0, 1 << 61))
        with bounded(seconds=3.0), pytest.raises(Unreadable):
            made.read()


def test_names_without_end() -> None:
    made = RpcMemory({"worker": 1})
    entry = made.workers["worker"]
    made.put(entry + 32, struct.pack("<QQ", AGENT, 1 << 62))
    with bounded(seconds=3.0), pytest.raises(Unreadable):
        made.read()


def test_all_of_it_is_tables() -> None:
    made = RpcMemory({"worker": 1})
    table = struct.pack("<4Qf4xQQ", AGENT, 13, 0, 0, 1.0, 13, 0)
    made.put(AGENT + 8, (table * 36)[:2_000])
    with bounded(seconds=3.0), pytest.raises(Unreadable, match="unknown form"):
        made.read()
