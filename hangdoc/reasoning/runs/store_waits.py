"""Which ranks wait for which keys of the run's stores, as the memory of the stores' servers says."""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.reasoning.model.run import Placed, StoreWait
from hangdoc.reasoning.runs.gathered import Gathered
from hangdoc.reasoning.runs.links import End, connections_of, end, index_of, other_end
from hangdoc.snapshot import AwaitedKey, Host, StoreServer, StoreServers


class _Served(NamedTuple):
    host: Host
    pid: int
    server: StoreServer


def store_waits(run: Gathered, members: dict[int, Placed]) -> tuple[StoreWait, ...]:
    """The waits that the stores of a run show, the keys of most ranks first."""
    served = [one for one in _served(run) if one.server.awaited]
    if not served:
        return ()
    owners = _owners(members)
    found: dict[StoreWait, None] = {}
    for host, pid, server in served:
        sockets = {c.inode: c for c in index_of(host).of([pid]) if c.local_port == server.port}
        for key in server.awaited:
            clients = (sockets[inode] for inode in key.sockets if inode in sockets)
            waiting = {owners[other_end(c)] for c in clients if other_end(c) in owners}
            if waiting:
                found[_wait(key, tuple(sorted(waiting)))] = None
    return tuple(sorted(found, key=lambda wait: (-len(wait.ranks), wait.key)))


def _wait(key: AwaitedKey, ranks: tuple[int, ...]) -> StoreWait:
    return StoreWait(key=key.name, ranks=ranks, alike=key.alike, alike_count=key.alike_count)


def _served(run: Gathered) -> Iterator[_Served]:
    for host, process in run.processes:
        if isinstance(process.stores, StoreServers):
            for server in process.stores.servers:
                yield _Served(host, process.pid, server)


def _owners(members: dict[int, Placed]) -> dict[End, int]:
    """The rank at each end of a live connection. A rank that serves a store has both ends of its own one."""
    hosts = {host.name: host for host, _ in members.values()}
    ranks = {(host.name, process.pid): rank for rank, (host, process) in members.items()}
    return {
        end(c): ranks[host.name, c.pid]
        for host, found in connections_of(hosts.values(), ranks)
        for c in found
        if c.state == "ESTABLISHED"
    }
