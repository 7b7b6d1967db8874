"""A process that serves a TCPStore, and what hangdoc reads of it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hangdoc.observe.torch.stores import Stores
from hangdoc.snapshot import StoreServer, StoreServers, Unavailable
from hangdoc_trainer.offspring import free_port
from tests.live.watched import PROGRAMS
from tests.pythons import observed

_SECONDS = 200


@contextmanager
def serving(clients: int, *arguments: str) -> Iterator[int]:
    """The pid of a process that serves a store and in which so many clients wait for keys."""
    words = [sys.executable, str(PROGRAMS / "served_store.py"), str(free_port()), str(clients), *arguments]
    started = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        until = time.monotonic() + _SECONDS
        while len(_awaited(started.pid)) <= clients:
            assert time.monotonic() < until
            time.sleep(0.05)
        yield started.pid
    finally:
        started.kill()
        started.communicate()


def read_stores(*pids: int) -> dict[int, StoreServers | Unavailable]:
    """The stores of each of these processes that serves one."""
    probe = Stores()
    with observed(*pids) as observation:
        for step in (probe.open, probe.during, probe.close):
            step(observation)
        found = ((pid, value) for pid, _, value in probe.evidence(observation))
        return {pid: value for pid, value in found if pid is not None and isinstance(value, StoreServers | Unavailable)}


def _awaited(pid: int) -> set[str]:
    """The keys for which its clients wait, as far as they could be read."""
    stores = read_stores(pid)[pid]
    servers = stores.servers if isinstance(stores, StoreServers) else ()
    return {key.name for server in servers for key in server.awaited if not key.name.startswith("/turn")}


def store_of(pid: int) -> StoreServer:
    """The only store of a process."""
    stores = read_stores(pid)[pid]
    assert isinstance(stores, StoreServers), stores
    (server,) = stores.servers
    return server
