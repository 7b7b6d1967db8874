"""The probe of TCPStores: which keys the clients of a store wait for.

It is read from the memory of the process that serves the store, a rank or a launcher, without a pause, also if that is stopped.
See `store_server`.
"""

import contextlib
import time
from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.kernel import system_calls
from hangdoc.observe.memory.cpp_objects import Classes
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.torch.libraries import Mapped, mapped_memory
from hangdoc.observe.torch.store_server import AwaitedName, Server, find_servers, read_server
from hangdoc.procfs import ProcError
from hangdoc.snapshot import AwaitedKey, StoreServer, StoreServers, Unavailable
from hangdoc.torch_facts import thread_names

_MAX_THREADS = 16
_STACK_BYTES = 1 << 18
"""Of the stack of a store's thread, from its top: it has about 20 KB."""
_TRIES, _PAUSE_SECONDS = 20, 0.001
"""The kernel shows no stack of a thread that runs. That of a store sleeps until it is asked for something."""
_MOST_KEYS, _MOST_SOCKETS = 64, 4_096
"""Awaited keys of a store, and clients that wait for one, that are kept."""
_MOST_ALIKE = 8


class _Threads(NamedTuple):
    """The threads of a process."""

    started: int
    """When the process started, in clock ticks."""
    all: tuple[int, ...]
    of_stores: tuple[int, ...]


class Stores:
    """The probe."""

    name = "stores"

    def __init__(self) -> None:
        self._listed: dict[int, _Threads] = {}
        """By pid."""
        self._found: dict[int, StoreServers | Unavailable] = {}

    def poll(self, observation: Observation) -> dict[int, StoreServers | Unavailable]:
        """Find the stores of all ranks and launchers, and read them."""
        self.during(observation)
        self.close(observation)
        return self._found

    def open(self, observation: Observation) -> None:
        """Nothing."""

    def during(self, observation: Observation) -> None:
        """Find the processes that serve a store."""
        targets = [target for target in observation.alive() if target.role != "helper"]
        listed = observation.read_each(targets, lambda target: self._list_threads(observation, target))
        self._listed = {pid: threads for pid, threads in listed.items() if not isinstance(threads, Unavailable)}

    def close(self, observation: Observation) -> None:
        """Read the stores: who waits for a key at the end of the window."""
        threads = {pid: listed.of_stores for pid, listed in list(self._listed.items()) if listed.of_stores}
        servers = [target for target in observation.alive() if target.pid in threads]
        self._found = observation.read_each(
            servers, lambda target: _read_stores(observation, target, threads[target.pid])
        )

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The stores of each process that serves one."""
        for pid, stores in list(self._found.items()):
            yield pid, "stores", stores

    def _list_threads(self, observation: Observation, target: Target) -> _Threads:
        """The threads of a process. If they are those of the last look, their names are not read again."""
        proc, tids = observation.proc, tuple(observation.proc.tids(target.pid))
        last = self._listed.get(target.pid)
        if last is not None and (last.started, last.all) == (target.start_ticks, tids):
            return last
        store_tids = []
        for tid in tids:
            with contextlib.suppress(ProcError):  # it has ended
                if proc.stat(f"{target.pid}/task/{tid}").name.startswith(thread_names.STORE):
                    store_tids.append(tid)
        return _Threads(target.start_ticks, tids, tuple(store_tids[:_MAX_THREADS]))


def _read_stores(observation: Observation, target: Target, threads: tuple[int, ...]) -> StoreServers:
    """Raises Unreadable."""
    servers = _read_servers(observation, target, threads)
    if not servers:
        raise Unreadable("its store always runs, or is not the one of libuv")
    return StoreServers(servers=tuple(_describe(observation, target.pid, server) for server in servers))


def _read_servers(observation: Observation, target: Target, threads: tuple[int, ...]) -> list[Server]:
    """The stores that some threads of a process serve. Raises Unreadable."""
    mapped = mapped_memory(observation.proc, target.pid)
    servers: dict[int, Server] = {}
    with Memory(target.pid, Layout(), str(observation.proc.root), observation.budget(target.pid)) as memory:
        classes = Classes(memory, mapped.torch)
        for tid in threads:
            for address in find_servers(memory, classes, _read_stack_of(observation, memory, mapped, tid)):
                if address not in servers:
                    servers[address] = read_server(memory, classes, address)
    return list(servers.values())


def _read_stack_of(observation: Observation, memory: Memory, mapped: Mapped, tid: int) -> bytes:
    """What is on the stack of a thread; empty if it runs all the time. Raises Overspent."""
    for attempt in range(_TRIES):
        time.sleep(_PAUSE_SECONDS if attempt else 0.0)
        try:
            top = system_calls.stack_pointer(observation.proc, f"{memory.pid}/task/{tid}")
            end = mapped.end_of(top) if top is not None else None
            if top is not None and end is not None:
                return memory.read(top, min(end - top, _STACK_BYTES))
        except Overspent:
            raise
        except (ProcError, ValueError, Unreadable):
            continue
    return b""


def _describe(observation: Observation, pid: int, server: Server) -> StoreServer:
    awaited = []
    for key in sorted(server.awaited)[:_MOST_KEYS]:
        sockets = filter(None, (_find_socket(observation, pid, number) for number in key.descriptors[:_MOST_SOCKETS]))
        awaited.append(_describe_awaited(key, tuple(sorted(sockets)), server.names))
    return StoreServer(port=server.port, keys=server.keys, clients=server.clients, awaited=tuple(awaited))


def _describe_awaited(key: AwaitedName, sockets: tuple[int, ...], names: tuple[bytes, ...]) -> AwaitedKey:
    place = key.name.rpartition(b"/")[0]
    alike = sorted(name for name in names if name.rpartition(b"/")[0] == place)
    texts = tuple(name.decode("utf-8", "replace") for name in alike[:_MOST_ALIKE])
    return AwaitedKey(name=key.name.decode("utf-8", "replace"), sockets=sockets, alike=texts, alike_count=len(alike))


def _find_socket(observation: Observation, pid: int, descriptor: int) -> int | None:
    """The inode of a socket."""
    with contextlib.suppress(ProcError, ValueError):
        link = observation.proc.link(f"{pid}/fd/{descriptor}")
        if link.startswith("socket:["):
            return int(link[8:-1])
    return None
