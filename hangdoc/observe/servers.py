"""The processes of this host for whose reply a thread waits on a TCP or Unix connection, and whether they are at work. A server
may belong to another job, user or container, which is not observed."""

import contextlib
import ipaddress
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from hangdoc.observe import holders, unix_diag
from hangdoc.observe.sock_diag import SockDiag
from hangdoc.procfs import ProcError, ProcFS, network_of
from hangdoc.snapshot import AwaitedFile, Clocks, PythonThread, Stack

_TORCH = "/torch/distributed/"
_MAX_NAMESPACES = 64
_Ends = tuple[str, int, str, int]
"""Local address and port, remote address and port."""


def named(proc: ProcFS, pid: int, clocks: Clocks, stack: Stack) -> Clocks:
    """The clocks of process `pid`, with the holders of the other ends of the connections on which its Python threads wait. Not
    for threads in torch.distributed: the ranks at the other ends are observed."""
    outside = {one.tid if one.tid is not None else pid for one in stack.threads if not _in_torch(one)}
    if not any(file.kind == "socket" for one in clocks.threads if one.tid in outside for file in one.files):
        return clocks
    threads = tuple(
        msgspec.structs.replace(one, files=tuple(_with_holders(proc, pid, file) for file in one.files))
        if one.tid in outside
        else one
        for one in clocks.threads
    )
    return msgspec.structs.replace(clocks, threads=threads)


def _in_torch(thread: PythonThread) -> bool:
    return any(_TORCH in frame.file for frame in thread.frames)


def _with_holders(proc: ProcFS, pid: int, file: AwaitedFile) -> AwaitedFile:
    peer = _peers(proc, holders.period()).get(file.inode or 0) if file.kind == "socket" else None
    pids = _owners(proc, holders.period()).get(peer, ()) if peer is not None else ()
    found = holders.at_work(proc, holders.of(proc, pids), pid)
    return msgspec.structs.replace(file, holders=found) if found else file


@lru_cache(1)
def _peers(proc: ProcFS, period: int) -> Mapping[int, int]:
    """The inode of the other end of each TCP or Unix socket whose other end is on this host, by its inode, as far as the network
    namespaces can be read."""
    members = {network_of(proc, pid): pid for pid in proc.pids()}
    own = network_of(proc, os.getpid())
    found: dict[int, int] = {}
    ends: dict[_Ends, dict[str, int]] = defaultdict(dict)
    for namespace, member in list(members.items())[:_MAX_NAMESPACES]:
        file = None if namespace == own else f"{proc.root}/{member}/ns/net"
        with contextlib.suppress(OSError):
            found |= unix_diag.peers(file)
        with contextlib.suppress(OSError), SockDiag(file) as diag:
            for one in diag.sockets():
                if one.remote_port:
                    place = (one.local_address, one.local_port, one.remote_address, one.remote_port)
                    ends[place][namespace] = one.inode
    for place, inodes in ends.items():
        others = ends.get((*place[2:], *place[:2]), {})
        for namespace, inode in inodes.items():
            # A loopback address is another one in each namespace.
            outside = others if len(others) == 1 and not ipaddress.ip_address(place[0]).is_loopback else {}
            if (other := others.get(namespace, next(iter(outside.values()), None))) is not None:
                found[inode] = other
    return found


@lru_cache(1)
def _owners(proc: ProcFS, period: int) -> Mapping[int, tuple[int, ...]]:
    """The processes that have each socket open, by its inode, as far as they can be read."""
    found: dict[int, list[int]] = defaultdict(list)
    for pid in proc.pids():
        try:
            links = proc.links(f"{pid}/fd").values()
        except ProcError:
            continue
        for inode in {int(link[8:-1]) for link in links if link.startswith("socket:[")}:
            found[inode].append(pid)
    return {inode: tuple(pids) for inode, pids in found.items()}
