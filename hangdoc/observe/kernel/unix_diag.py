"""The other ends of the Unix sockets of a network namespace, from the kernel: sock_diag(7), linux/unix_diag.h."""

import socket
import struct
import sys
from contextlib import closing

from hangdoc.observe.kernel import sock_diag
from hangdoc.observe.kernel.netlink import attribute

_REQUEST = struct.Struct("=BBHIII8x")
"""unix_diag_req: family, protocol, padding, states, inode, what to show; no particular socket."""
_MESSAGE = struct.Struct("=BBBxI8x")
"""unix_diag_msg: family, type, state, inode."""
_ALL_STATES = 0xFFFFFFFF
_SHOW_PEER = 4
"""UDIAG_SHOW_PEER."""
_PEER = 2
"""UNIX_DIAG_PEER: the attribute that contains the inode of the other end."""


def peers(namespace_file: str | None) -> dict[int, int]:
    """The inode of the other end of each connected Unix socket, by its inode. `namespace_file` as for `SockDiag`. Raises
    OSError."""
    other_ends = {}
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_PEER)
    with closing(sock_diag.connection(namespace_file)) as netlink:
        for data, at, end in netlink.dump(sock_diag.BY_FAMILY, request):
            place = attribute(data, at + _MESSAGE.size, end, _PEER)
            if place is not None:
                other_ends[_MESSAGE.unpack_from(data, at)[-1]] = int.from_bytes(
                    data[place[0] : place[1]], sys.byteorder
                )
    return other_ends
