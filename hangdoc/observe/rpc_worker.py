"""The name of a process in torch.distributed.rpc, from libtorch's memory: a request names its receiver, not the receiver's rank.

A `WorkerInfo` (torch/csrc/distributed/rpc/rpc_agent.h) is a vtable, one or two words of reference counts (they share a word since
torch 2.10), the name as a std::string and the rank as a 16-bit number.
"""

import struct

from hangdoc.observe.elf import MappedFile
from hangdoc.observe.maps import mapped_files
from hangdoc.observe.memory import Memory, Unreadable
from hangdoc.procfs import ProcError, ProcFS

_LIBRARY = "/libtorch_cpu.so"
_CURRENT_AGENT = "_ZN5torch11distributed3rpc8RpcAgent16currentRpcAgent_E"
"""`RpcAgent::currentRpcAgent_`, a std::shared_ptr: the pointer to the agent comes first."""
_WORKER_AT = 8
"""RpcAgent: a vtable, then `workerInfo_`."""
_NAME_AT = (16, 24)
_STRING_BYTES = 32
_MAX_NAME = 128
"""torch's own limit (WorkerInfo::MAX_NAME_LEN)."""


def own_name(proc: ProcFS, memory: Memory) -> str | None:
    """The name under which a process called `init_rpc`; None if it has not, or if libtorch cannot be read."""
    try:
        base = next(file.base for file in mapped_files(proc, memory.pid) if file.path.endswith(_LIBRARY))
        symbol = MappedFile(memory, base).symbol(_CURRENT_AGENT)
        agent = memory.word(symbol.address) if symbol is not None else 0
        return _name(memory, agent + _WORKER_AT) if agent else None
    except (ProcError, Unreadable, StopIteration):
        return None


def worker_info(memory: Memory, address: int) -> str | None:
    """A `WorkerInfo` of Python as `WorkerInfo('server')`; None for anything else."""
    if memory.kind(address)[0] != "torch._C._distributed_rpc.WorkerInfo":
        return None
    name = _name(memory, memory.cpp_object(address))
    return None if name is None else f"WorkerInfo({name!r})"


def _name(memory: Memory, info: int) -> str | None:
    for at in _NAME_AT:
        text, size = struct.unpack("<QQ", memory.read(info + at, 16))
        if 0 < size <= _MAX_NAME:
            name = memory.read(text, size).decode("ascii", "replace")
            (rank,) = struct.unpack("<h", memory.read(info + at + _STRING_BYTES, 2))
            if name.isprintable() and rank >= 0:
                return name
    return None
