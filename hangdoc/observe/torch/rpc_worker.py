"""What a process is in torch.distributed.rpc, from libtorch's memory: its name, because a request names its receiver, not the
receiver's rank; and its open calls.
"""

from typing import NamedTuple

from hangdoc.observe.memory.cpp_objects import Classes
from hangdoc.observe.memory.mapped_elf import MappedFile
from hangdoc.observe.memory.maps import mapped_files
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.observe.torch.libraries import mapped_memory
from hangdoc.observe.torch.rpc_agent import WORKER_BYTES, open_calls, read_worker
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.torch_facts import cpp_names, module_names

_WORKER_AT = 8
"""RpcAgent: a vtable, then `workerInfo_`."""


class Agent(NamedTuple):
    """What a process says of itself in RPC."""

    name: str | None
    """The name under which it called `init_rpc`."""
    calls: dict[str, int]
    """How many calls to each worker are not answered; empty if that cannot be read."""


def read_agent(proc: ProcFS, memory: Memory) -> Agent | None:
    """The agent of a process; None if it has none, or if libtorch cannot be read."""
    try:
        base = next(file.base for file in mapped_files(proc, memory.pid) if file.path.endswith(cpp_names.LIBTORCH_CPU))
        symbol = MappedFile(memory, base).symbol(cpp_names.CURRENT_RPC_AGENT)
        agent = memory.word(symbol.address) if symbol is not None else 0
        return Agent(_read_name(memory, agent + _WORKER_AT), _read_calls(proc, memory, agent)) if agent else None
    except (ProcError, Unreadable, StopIteration):
        return None


def _read_calls(proc: ProcFS, memory: Memory, agent: int) -> dict[str, int]:
    try:
        return open_calls(memory, Classes(memory, mapped_memory(proc, memory.pid).torch), agent)
    except Overspent:
        raise
    except Unreadable:
        return {}


def worker_info(memory: Memory, address: int) -> str | None:
    """A `WorkerInfo` of Python as `WorkerInfo('server')`; None for anything else."""
    if memory.kind(address)[0] != module_names.WORKER_INFO:
        return None
    name = _read_name(memory, memory.cpp_object(address))
    return None if name is None else f"WorkerInfo({name!r})"


def _read_name(memory: Memory, info: int) -> str | None:
    raw = memory.read(info, WORKER_BYTES)
    try:
        return read_worker(memory, raw, info)
    except Overspent:
        raise
    except Unreadable:
        return None
