"""A made-up process with an agent of torch.distributed.rpc that has open calls."""

import struct
from collections.abc import Mapping

from hangdoc.observe.memory.cpp_objects import hash_of
from hangdoc.observe.torch.rpc_agent import open_calls
from tests.unit.made_memory import MadeMemory

AGENT = 0x100_0000
AGENT_CLASS, WORKER_CLASS = "N5torch11distributed3rpc15TensorPipeAgentE", "N5torch11distributed3rpc10WorkerInfoE"
TABLES_AT = 896
"""In torch 2.13."""


class RpcMemory(MadeMemory):
    """`calls` are the numbers of open calls to each worker, None for a worker to which there is no connection."""

    def __init__(
        self,
        calls: Mapping[str, int | None],
        *,
        copied_strings: bool = False,
        counts: int = 8,
        between: int | None = None,
        calls_at: int = 80,
    ) -> None:
        """`counts`: bytes of the reference counts of a worker. `between`: the table before which there is a member that torch
        does not have. `calls_at`: where a connection has its calls."""
        super().__init__()
        self.classes = self.new_classes(AGENT_CLASS, WORKER_CLASS)
        self.copied_strings, self._counts = copied_strings, counts
        self.pipes: dict[str, int] = {}
        self.workers: dict[str, int] = {}
        for number, (name, count) in enumerate(calls.items()):
            self.workers[name] = address = self.new(bytes(112))
            self.put(address, struct.pack("<QQ", 0, number) + self._worker(address + 16, number, name))
            if count is not None:
                self.pipes[name] = pipe = self.new(bytes(192))
                self.put(pipe + 8, struct.pack("<Q", number))
                sent = [self.new(struct.pack("<QQQQ", 0, 7 + call, 0, 0)) for call in range(count)]
                self.put_table(pipe + calls_at, sent)
        names, addresses = (
            [self._named(name, number) for number, name in enumerate(calls)],
            [self.new(bytes(96)) for _ in calls],
        )
        self.put(AGENT, struct.pack("<Q", self.classes[AGENT_CLASS]).ljust(2_048, b"\0"))
        self.put_table(AGENT + 384, [])  # the maps of devices
        at = TABLES_AT
        for number, entries in enumerate((list(self.pipes.values()), list(self.workers.values()), names, addresses)):
            at += 8 * (number == between)
            self.put_table(AGENT + at, entries)
            at += 56

    def _worker(self, address: int, number: int, name: str) -> bytes:
        head = struct.pack("<Q", self.classes[WORKER_CLASS]) + bytes(self._counts)
        return head + self.string(name, address + len(head), copied=self.copied_strings) + struct.pack("<Q", number)

    def _named(self, name: str, number: int) -> int:
        """The entry of a worker by its name."""
        address = self.new(bytes(144))
        key = self.string(name, address + 8, copied=self.copied_strings)
        raw = bytes(8) + key + self._worker(address + 8 + len(key), number, name)
        self.put(address, raw + struct.pack("<Q", hash_of(name.encode())))
        return address

    def read(self) -> dict[str, int]:
        """The open calls that hangdoc reads."""
        with self.opened() as (memory, classes):
            return open_calls(memory, classes, AGENT)
