"""All TCP sockets of a network namespace, from the kernel: sock_diag(7), linux/inet_diag.h, `struct tcp_info` of linux/tcp.h.

This is not done with pyroute2, whose import takes 0.13 to 0.25 s of CPU, half of a whole diagnose. hangdoc needs only one
request, one kind of reply, and one structure to which the kernel only appends.
"""

import socket
import struct
from collections.abc import Iterator
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple

from hangdoc.observe.kernel.netlink import Netlink, attribute
from hangdoc.observe.kernel.network_namespace import create_in

_NETLINK_SOCK_DIAG = 4
BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY: the kind of a request."""
_REQUEST = struct.Struct("=BBBxIHH44x")
"""inet_diag_req_v2: family, protocol, extensions, states, local and remote port in network byte order; 0 stands for any."""
_MESSAGE = struct.Struct("=BB2x2s2s16s16s12x4xIIII")
"""inet_diag_msg: family, state, ports, addresses, queues, user, inode."""
_INFO = 2
"""INET_DIAG_INFO: the attribute that contains a tcp_info."""
_TCP_INFO = struct.Struct("=2xBxB3x16xI16xI4xI12xI48xQQ24xQQ")
ALL_STATES = 0xFFF & ~(1 << 6)
"""Without TIME_WAIT: no process owns such a socket."""
LISTEN = 10


class TcpInfo(NamedTuple):
    """The fields of `struct tcp_info` that hangdoc uses. `last_*_ms` are ages; `busy_us` is the total of the connection."""

    retransmits: int
    backoff: int
    unacked: int
    last_sent_ms: int
    last_received_ms: int
    rtt_us: int
    bytes_acked: int
    bytes_received: int
    delivery_rate: int
    """Bytes per second."""
    busy_us: int


class TcpSocket(NamedTuple):
    """One socket. The queues are in bytes, or in connections for a listening socket."""

    family: int
    state: int
    """include/net/tcp_states.h."""
    local_port_bytes: bytes
    """In network byte order."""
    remote_port_bytes: bytes
    local: bytes
    remote: bytes
    receive_queue: int
    send_queue: int
    user: int
    inode: int
    info: TcpInfo | None

    @property
    def local_port(self) -> int:
        """Port of this end."""
        return int.from_bytes(self.local_port_bytes, "big")

    @property
    def remote_port(self) -> int:
        """Port of the peer."""
        return int.from_bytes(self.remote_port_bytes, "big")

    @property
    def local_address(self) -> str:
        """Address of this end as text. An IPv4-mapped IPv6 address is given as IPv4."""
        return address(self.family, self.local)

    @property
    def remote_address(self) -> str:
        """Address of the peer as text, in the same way."""
        return address(self.family, self.remote)


class SockDiag:
    """A netlink socket in one network namespace. A request takes one system call per hundred sockets. Raises OSError."""

    def __init__(self, namespace_file: str | None = None) -> None:
        """`namespace_file` is /proc/PID/ns/net of a process in another namespace; None for our own."""
        self._netlink = connection(namespace_file)
        self._info_at, self._info_header = 0, b""
        """Where in a reply the tcp_info of the last socket was, and what stood in front of it. That of the next one is nearly
        always at the same place."""

    def __enter__(self) -> "SockDiag":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the netlink socket."""
        self._netlink.close()

    def sockets(self, states: int = ALL_STATES, local_port: int = 0, remote_port: int = 0) -> Iterator[TcpSocket]:
        """All TCP sockets that some process owns, IPv4 and IPv6: those in `states` (a bit for each), and with these ports unless
        they are 0."""
        ports = socket.htons(local_port), socket.htons(remote_port)
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), states, *ports)
            message, message_size = _MESSAGE.unpack_from, _MESSAGE.size
            try:
                for data, at, end in self._netlink.dump(BY_FAMILY, body):
                    yield TcpSocket._make((*message(data, at), self._parse_info(data, at, at + message_size, end)))
            except FileNotFoundError:
                if family == socket.AF_INET:  # a kernel without IPv6 refuses the second request
                    raise

    def _parse_info(self, data: bytes, message: int, at: int, end: int) -> TcpInfo | None:
        """The tcp_info among the attributes from `at` to `end` of the reply that begins at `message`; None if there is none."""
        begin = message + self._info_at
        if data[begin - 4 : begin] != self._info_header or begin + _TCP_INFO.size > end:
            place = attribute(data, at, end, _INFO)
            if place is None:
                return None
            begin, until = place
            if until - begin < _TCP_INFO.size:
                # In older kernels the structure is shorter (4.10 added the last field that is used here).
                return TcpInfo._make(_TCP_INFO.unpack(data[begin:until].ljust(_TCP_INFO.size, b"\0")))
            self._info_at, self._info_header = begin - message, data[begin - 4 : begin]
        return TcpInfo._make(_TCP_INFO.unpack_from(data, begin))


@lru_cache(8192)
def address(family: int, raw: bytes) -> str:
    """The first 4 bytes (IPv4) or all 16 as text. An IPv4-mapped address (`::ffff:127.0.0.1`) is given as IPv4."""
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw)


def connection(namespace_file: str | None) -> Netlink:
    """A netlink socket for sock_diag(7) in a network namespace, which is named as for `SockDiag`. Raises OSError."""
    return create_in(namespace_file, lambda: Netlink(_NETLINK_SOCK_DIAG))
