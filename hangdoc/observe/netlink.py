"""Dumps over netlink(7): one question to the kernel, and its answers."""

import os
import socket
import struct
from collections.abc import Iterator

_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port."""
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER_BYTES = 1 << 18
_PATIENCE_SECONDS = 5.0


class Netlink:
    """A socket of one of netlink's protocols, in the network namespace of the thread that makes it. Raises OSError."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._asked = 0
        try:
            self._socket.settimeout(_PATIENCE_SECONDS)
            self._socket.bind((0, 0))
            self._socket.connect((0, 0))  # the kernel, and nobody else
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Done with it."""
        self._socket.close()

    def dump(self, kind: int, body: bytes) -> Iterator[tuple[bytes, int, int]]:
        """For each answer the buffer that it lies in, and where its body begins and ends."""
        self._asked += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, self._asked, 0) + body)
        header, header_size = _HEADER.unpack_from, _HEADER.size
        while True:
            data = self._socket.recv(_BUFFER_BYTES)
            at, size = 0, len(data)
            while at + header_size <= size:
                length, kind, _, sequence, _ = header(data, at)
                if length < header_size:
                    raise OSError("the kernel's answer is not in the known form")
                begin = at + header_size
                if sequence == self._asked:  # not left over from a question that was given up
                    if kind == _DONE:
                        return
                    if kind == _ERROR:
                        (number,) = struct.unpack_from("=i", data, begin)
                        raise OSError(-number, os.strerror(-number))
                    yield data, begin, at + length
                at += length + 3 & ~3


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The attributes between two places: the kind of each, and where its value begins and ends."""
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, at + 4, at + length
        at += (length if length > 4 else 4) + 3 & ~3
