"""Dump requests over netlink(7): one request to the kernel, and its replies."""

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
_REPLY_SECONDS = 5.0


class Netlink:
    """A socket of one netlink protocol, in the network namespace of the thread that creates it. Raises OSError."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 0
        try:
            self._socket.settimeout(_REPLY_SECONDS)
            self._socket.bind((0, 0))
            self._socket.connect((0, 0))  # pid 0 is the kernel
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def dump(self, kind: int, body: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Send a dump request. Gives for each reply its buffer, and the positions in it where its body begins and ends."""
        self._sequence += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, self._sequence, 0) + body)
        header, header_size = _HEADER.unpack_from, _HEADER.size
        while True:
            data = self._socket.recv(_BUFFER_BYTES)
            at, size = 0, len(data)
            while at + header_size <= size:
                length, kind, _, sequence, _ = header(data, at)
                if length < header_size:
                    raise OSError("the kernel's reply has an unknown format")
                begin = at + header_size
                if sequence == self._sequence:  # otherwise a late reply to an earlier request
                    if kind == _DONE:
                        return
                    if kind == _ERROR:
                        (number,) = struct.unpack_from("=i", data, begin)
                        raise OSError(-number, os.strerror(-number))
                    yield data, begin, at + length
                at += length + 3 & ~3


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The attributes from `at` to `end`: the kind of each, and the positions where its value begins and ends."""
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, at + 4, at + length
        at += (length if length > 4 else 4) + 3 & ~3


def attribute(data: bytes, at: int, end: int, wanted: int) -> tuple[int, int] | None:
    """Where the value of the first attribute of kind `wanted` begins and ends; None if there is none. A run of 64 ranks has
    thousands of sockets, for which this takes half the time of `attributes`."""
    read = _ATTRIBUTE.unpack_from
    while at + 4 <= end:
        length, kind = read(data, at)
        if kind == wanted:
            return at + 4, at + length
        at += (length if length > 4 else 4) + 3 & ~3
    return None
