"""The processes of this host at the two ends of TCP and Unix connections."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import lru_cache
from typing import NamedTuple

from hangdoc.observe.kernel import file_holders, unix_diag
from hangdoc.observe.kernel.sock_diag import LISTEN, SockDiag
from hangdoc.procfs import ProcError, ProcFS, network_of
from hangdoc.run_identity import is_loopback

_MAX_NAMESPACES = 64
_Ends = tuple[str, int, str, int]
"""Local address and port, remote address and port."""


def of_socket(proc: ProcFS, inode: int, period: int, near: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The processes at the other end of a socket, as far as they are known. `period`: see `file_holders.period`. `near`:
    processes with all their ancestors and descendants, which are searched before the rest of the host."""
    other = _read_sockets(proc, period).other_ends.get(inode)
    return _find_owners(proc, {other}, period, near).get(other, ()) if other is not None else ()


def of_processes(proc: ProcFS, pids: Set[int], period: int, near: frozenset[int] = frozenset()) -> set[int]:
    """The other processes with which some processes are connected. `period`, `near`: as for `of_socket`."""
    near = near if pids <= near else frozenset()
    own = (inode for inode, owners in _read_owners(proc, period, near).items() if not pids.isdisjoint(owners))
    ends = _read_sockets(proc, period).other_ends
    others = {ends[inode] for inode in own if inode in ends}
    owners = _find_owners(proc, others, period, near)
    return {peer for inode in others for peer in owners.get(inode, ())} - pids


def listens(proc: ProcFS, inode: int, period: int) -> bool:
    """Whether a socket is a Unix socket that listens. Of those of TCP, a `Connection` says it."""
    return inode in _read_sockets(proc, period).listening


def accepts(proc: ProcFS, inode: int, period: int) -> bool:
    """Whether a socket is one of TCP or a Unix socket that listens."""
    return inode in _read_sockets(proc, period).accepting


def is_accepted(proc: ProcFS, inode: int, period: int) -> bool:
    """Whether a socket is the server's end of a connection at a Unix socket: only that end has its address."""
    return inode in _read_sockets(proc, period).accepted


class _Sockets(NamedTuple):
    """The sockets of this host, as far as the network namespaces can be read."""

    other_ends: Mapping[int, int]
    """The inode of the other end of each TCP or Unix socket whose other end is on this host, by its inode. The other end of a
    connection that a server has not accepted is the socket at which it listens."""
    listening: frozenset[int]
    """The Unix sockets that listen."""
    accepted: frozenset[int]
    """The connected ones that have an address."""
    accepting: frozenset[int]
    """The TCP and Unix sockets that listen."""
    unix: frozenset[int]
    """All Unix sockets."""


@lru_cache(1)
def _read_sockets(proc: ProcFS, period: int) -> _Sockets:
    members = {network_of(proc, pid): pid for pid in proc.pids()}
    own = network_of(proc, os.getpid())
    made_by_users = {namespace for namespace, member in members.items() if not _is_of_our_users(proc, member)}
    other_ends: dict[int, int] = {}
    all_unix: set[int] = set()
    unix_listening: set[int] = set()
    unix_accepted: set[int] = set()
    ends: dict[_Ends, dict[str, int]] = defaultdict(dict)
    listening: dict[tuple[str, int], int] = {}
    for namespace, member in list(members.items())[:_MAX_NAMESPACES]:
        file = None if namespace == own else f"{proc.root}/{member}/ns/net"
        with contextlib.suppress(OSError):
            for unix in unix_diag.read_sockets(file):
                all_unix.add(unix.inode)
                if unix.peer is not None:
                    other_ends[unix.inode] = unix.peer
                    if unix.has_address:
                        unix_accepted.add(unix.inode)
                elif unix.listens:
                    unix_listening.add(unix.inode)
        with contextlib.suppress(OSError), SockDiag(file) as diag:
            for socket in diag.sockets():
                if socket.remote_port:
                    place = (socket.local_address, socket.local_port, socket.remote_address, socket.remote_port)
                    ends[place][namespace] = socket.inode
                elif socket.state == LISTEN:
                    listening[namespace, socket.local_port] = socket.inode
    for place, inodes in ends.items():
        others = ends.get((*place[2:], *place[:2]), {})
        # A loopback address is another one in each namespace, and a user may give any address to one that it has made.
        local = is_loopback(place[0])
        outside = [] if local else [namespace for namespace in others if namespace not in made_by_users]
        for namespace, inode in inodes.items():
            there = namespace if namespace in others else outside[0] if len(outside) == 1 else None
            if there is not None and (other := others[there] or listening.get((there, place[3]))):
                other_ends[inode] = other
    accepting = unix_listening | set(listening.values())
    return _Sockets(
        other_ends, frozenset(unix_listening), frozenset(unix_accepted), frozenset(accepting), frozenset(all_unix)
    )


def _is_of_our_users(proc: ProcFS, pid: int) -> bool:
    """Whether a process is in our user namespace. In one of their own, users make networks with any address."""
    try:
        return proc.link(f"{pid}/ns/user") == proc.link("self/ns/user")
    except ProcError:
        return False


def _find_owners(proc: ProcFS, inodes: Set[int], period: int, near: frozenset[int]) -> Mapping[int, tuple[int, ...]]:
    """The processes that have some sockets open, and others, by inode. If those of `near` have all of them, no others are read:
    a process inherits the socket of a TCP connection from one above it. Pairs of Unix sockets are made to be passed on."""
    owners = _read_owners(proc, period, near) if near and inodes.isdisjoint(_read_sockets(proc, period).unix) else {}
    return owners if owners.keys() >= inodes else _read_owners(proc, period)


@lru_cache(2)
def _read_owners(proc: ProcFS, period: int, near: frozenset[int] = frozenset()) -> Mapping[int, tuple[int, ...]]:
    """The processes that have each socket open, by its inode, as far as they can be read. Without `near`, those of the host."""
    owners: dict[int, list[int]] = defaultdict(list)
    for pid, links in file_holders.open_files(proc, near or None):
        if links is None:
            continue
        for inode in {int(link[8:-1]) for link in links.values() if link.startswith("socket:[")}:
            owners[inode].append(pid)
    return {inode: tuple(pids) for inode, pids in owners.items()}
