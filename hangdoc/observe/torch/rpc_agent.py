"""The calls of torch.distributed.rpc that a process has sent and that are not answered, by the worker that has to answer.

They are in its `TensorPipeAgent` (torch/csrc/distributed/rpc/tensorpipe_agent.h), whose class run-time type information names. It
has four hash tables in a row: connections by the number of the worker, workers by number, workers by name, addresses by name.
They must fit together: each name has its own hash and is that of the worker with the same number, and a connection is to one of
them.
"""

import struct
from itertools import product

from hangdoc.observe.memory.cpp_objects import (
    SHARED_STRING_BYTES,
    STRING_BYTES,
    Classes,
    Table,
    entries_of,
    hash_of,
    parse_table,
    read_string,
    tables_in,
)
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.torch_facts.cpp_names import RPC_AGENT, RPC_WORKER

_AGENT_BYTES, _LEAST_BYTES = 2_048, 1_536
_TABLES = 4
WORKER_BYTES = 64
_WORKER_AT = 16
"""In an entry of a table by numbers."""
_NAME_AT, _HIGHEST_NUMBER = (16, 24), (1 << 15) - 1
"""In a `WorkerInfo` (torch/csrc/distributed/rpc/rpc_agent.h): a vtable, one or two words of reference counts (they share a word
since torch 2.10), the name, the rank as a 16-bit number."""
_PIPE_BYTES, _CALLS_AT = 160, range(32, 104, 8)
"""What is read of a connection, and where its hash table of calls may be: behind the pipe, a mutex and a flag."""
_MAX_WORKERS, _MAX_CALLS = 4_096, 65_536
_MAX_NAME = 128
"""torch's own limit (WorkerInfo::MAX_NAME_LEN)."""
_TRIES = 3


def open_calls(memory: Memory, classes: Classes, agent: int) -> dict[str, int]:
    """How many calls to each worker are open, of the agent at this address. Raises Unreadable for one of another form."""
    reason = Unreadable("calls of an unknown form")
    for _ in range(_TRIES):
        try:
            return _read_calls(memory, classes, agent)
        except Overspent:
            raise
        except Unreadable as error:
            reason = error
    raise reason


def _read_calls(memory: Memory, classes: Classes, agent: int) -> dict[str, int]:
    if classes.name_of(agent) != RPC_AGENT:
        raise Unreadable("no agent of TensorPipe")
    runs = [tables for tables, _ in tables_in(_read_members(memory, agent), agent) if len(tables) == _TABLES]
    if len(runs) != 1:
        raise Unreadable("an agent of an unknown form")
    pipes, by_number, by_name, addresses = runs[0]
    workers = _read_workers(memory, classes, by_number)
    if _read_names(memory, by_name) != set(workers.values()) or addresses.size != by_name.size:
        raise Unreadable("workers of an unknown form")
    calls_by_worker = {}
    for address, raw in entries_of(memory, pipes, _PIPE_BYTES, _MAX_WORKERS):
        tables = [table for at in _CALLS_AT if (table := parse_table(raw, at, address))]
        number = _number(raw, 8)
        if len(tables) != 1 or number not in workers:
            raise Unreadable("connections of an unknown form")
        calls = sum(1 for _ in entries_of(memory, tables[0], 16, _MAX_CALLS))
        if calls:
            calls_by_worker[workers[number]] = calls
    return calls_by_worker


def _read_members(memory: Memory, agent: int) -> bytes:
    try:
        return memory.read(agent, _AGENT_BYTES)
    except Overspent:
        raise
    except Unreadable:  # it is at the end of what is mapped
        return memory.read(agent, _LEAST_BYTES)


def _read_workers(memory: Memory, classes: Classes, table: Table) -> dict[int, str]:
    """The names of the workers by their numbers."""
    workers = {}
    for address, raw in entries_of(memory, table, _WORKER_AT + WORKER_BYTES, _MAX_WORKERS):
        if classes.name_at(int.from_bytes(raw[_WORKER_AT : _WORKER_AT + 8], "little")) != RPC_WORKER:
            raise Unreadable("workers of an unknown form")
        number = _number(raw, 8)
        workers[number] = read_worker(memory, raw[_WORKER_AT:], address + _WORKER_AT, number)
    return workers


def read_worker(memory: Memory, raw: bytes, address: int, number: int | None = None) -> str:
    """The name of the `WorkerInfo` at `address`, of which `raw` has `WORKER_BYTES`; it has this number, if that is known. Raises
    Unreadable."""
    for at, copied in product(_NAME_AT, (False, True)):
        try:
            name = read_string(memory, raw, at, address, _MAX_NAME, copied=copied)
            # The length of one form may be the number of a worker in the other one.
            ends = memory.read(int.from_bytes(raw[at : at + 8], "little") + len(name), 1) == b"\0"
        except Overspent:
            raise
        except Unreadable:
            continue
        of_worker = _number(raw, at + (SHARED_STRING_BYTES if copied else STRING_BYTES))
        fits = of_worker <= _HIGHEST_NUMBER if number is None else of_worker == number
        if name and ends and fits and name.isascii() and name.decode().isprintable():
            return name.decode()
    raise Unreadable("workers of an unknown form")


def _read_names(memory: Memory, table: Table) -> set[str]:
    """The keys of the table of workers by name. The hash is behind the worker, whose size differs."""
    names = set()
    for address, raw in entries_of(memory, table, 112, _MAX_WORKERS):
        for copied in (False, True):
            size = SHARED_STRING_BYTES if copied else STRING_BYTES
            try:
                name = read_string(memory, raw, 8, address, _MAX_NAME, copied=copied)
            except Overspent:
                raise
            except Unreadable:
                continue
            worker = range(8 + size + 16, len(raw) - 7, 8)
            if any(int.from_bytes(raw[at : at + 8], "little") == hash_of(name) for at in worker):
                names.add(name.decode("ascii", "replace"))
    return names


def _number(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", raw, at)[0])
