"""The processes of this host for whose reply a thread waits on a TCP connection, and whether they are at work. A server may
belong to another job or user, which is not observed."""

import os
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from hangdoc.observe import holders
from hangdoc.observe.sock_diag import SockDiag
from hangdoc.procfs import ProcError, ProcFS, network_of
from hangdoc.snapshot import AwaitedFile, Clocks, PythonThread, Stack

_TORCH = "/torch/distributed/"


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
    peer = _peers(proc, network_of(proc, pid), holders.period()).get(file.inode or 0) if file.kind == "socket" else None
    pids = _owners(proc, holders.period()).get(peer, ()) if peer is not None else ()
    found = holders.at_work(proc, holders.of(proc, pids), pid)
    return msgspec.structs.replace(file, holders=found) if found else file


@lru_cache(8)
def _peers(proc: ProcFS, namespace: str, period: int) -> Mapping[int, int]:
    """For each TCP socket in a network namespace whose other end is there too, the inode of that; empty if they can't be read."""
    member = next((pid for pid in proc.pids() if network_of(proc, pid) == namespace), None)
    own = namespace == network_of(proc, os.getpid())
    try:
        with SockDiag(None if own else f"{proc.root}/{member}/ns/net") as diag:
            sockets = list(diag.sockets())
    except OSError:
        return {}
    ends = {
        (one.local_address, one.local_port, one.remote_address, one.remote_port): one.inode
        for one in sockets
        if one.remote_port
    }
    found = ((inode, ends.get((*place[2:], *place[:2]))) for place, inode in ends.items())
    return {inode: other for inode, other in found if other is not None}


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
