"""The Unix sockets of a network namespace, from the kernel: sock_diag(7), linux/unix_diag.h."""

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from hangdoc.observe.kernel import sock_diag
from hangdoc.observe.kernel.netlink import attribute

_REQUEST = struct.Struct("=BBHIII8x")
"""unix_diag_req: family, protocol, padding, states, inode, what to show; no particular socket."""
_MESSAGE = struct.Struct("=BBBxI8x")
"""unix_diag_msg: family, type, state, inode."""
_ALL_STATES = 0xFFFFFFFF
_LISTEN = 10
"""TCP_LISTEN, which is the state of a Unix socket that listens too."""
_DATAGRAM = 2
"""SOCK_DGRAM (include/linux/net.h)."""
_SHOW = 1 | 4
"""UDIAG_SHOW_NAME, UDIAG_SHOW_PEER."""
_NAME, _PEER = 0, 2
"""UNIX_DIAG_NAME, UNIX_DIAG_PEER: the attributes that contain the address, and the inode of the other end."""


class UnixSocket(NamedTuple):
    """A Unix socket."""

    inode: int
    listens: bool
    """It waits for connections, or for datagrams of anybody who knows its address."""
    peer: int | None
    """The inode of the other end; None if it is not connected."""
    has_address: bool = False
    """It was bound, or a socket that was bound and listens has accepted it."""


def read_sockets(namespace_file: str | None) -> Iterator[UnixSocket]:
    """The Unix sockets. `namespace_file` as for `SockDiag`. Raises OSError."""
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW)
    with closing(sock_diag.connection(namespace_file)) as netlink:
        for data, at, end in netlink.dump(sock_diag.BY_FAMILY, request):
            _, kind, state, inode = _MESSAGE.unpack_from(data, at)
            place = attribute(data, at + _MESSAGE.size, end, _PEER)
            peer = int.from_bytes(data[place[0] : place[1]], sys.byteorder) if place is not None else None
            address = attribute(data, at + _MESSAGE.size, end, _NAME)
            # One without a path may have got its address from the kernel, when it sent.
            has_path = address is not None and data[address[0] : address[0] + 1] not in (b"", b"\0")
            receives = kind == _DATAGRAM and peer is None and has_path
            yield UnixSocket(inode, state == _LISTEN or receives, peer, address is not None)
