"""A client of a rank's worker server: a C++ thread of torch that serves HTTP, even while the rank holds the GIL
(torch/distributed/elastic/control_plane.py).
"""

import contextlib
import http.client
import os
import socket
import struct
from collections.abc import Iterator

import psutil

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.access.process_files import files_of
from hangdoc.procfs import ProcFS
from hangdoc.timed_exchange import Limit, TimedConnection, TimedSocket

_TIMEOUT_SECONDS = 2.0
"""Limit for the whole exchange with a rank's server."""
_MAX_BYTES = 16 << 20


def ask(observation: Observation, target: Target, path: str | None, handler: str) -> bytes:
    """The response of a handler. `path` is the server's Unix socket, None for torch's debug server, which listens on a port.
    Raises OSError, ProcError."""
    try:
        return _read_response(_worker_server(observation, target, path), handler)
    except (http.client.HTTPException, psutil.Error) as error:
        raise ConnectionError(str(error)) from error


class _UnixConnection(TimedConnection):
    def __init__(self, proc: ProcFS, target: Target, path: str, limit: Limit) -> None:
        super().__init__("localhost", limit)
        self._proc, self._target, self._path, self._limit = proc, target, path, limit

    def connect(self) -> None:
        self.sock = own = TimedSocket(self._limit, socket.AF_UNIX)
        with files_of(self._proc, self._target.pid, self._target.start_ticks) as files:
            files.run(lambda root: root.connect(own, self._path), self._limit.left())
        peer, _, _ = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if peer != self._target.pid:  # all ranks of a host are configured with the same path, and one of them owns it
            self.sock.close()
            raise ConnectionRefusedError(f"its socket belongs to pid {peer}")


def _worker_server(observation: Observation, target: Target, path: str | None) -> http.client.HTTPConnection:
    """A connection to a rank's worker server, not opened yet. Raises ConnectionError if its port is not certain."""
    limit = Limit(observation.deadline.remaining(_TIMEOUT_SECONDS))
    if path:
        return _UnixConnection(observation.proc, target, os.path.join("/", path), limit)
    if observation.proc.link(f"{target.pid}/ns/net") != observation.proc.link("self/ns/net"):
        raise ConnectionError("it is in another network namespace")
    # Gloo listens on one address. The worker server and the store listen on all addresses.
    ports = set(_list_open_ports(target)) - {target.identity.master_port if target.identity else None}
    if len(ports) != 1:
        raise ConnectionError(f"it can't be identified among the rank's ports {sorted(p for p in ports if p)}")
    return TimedConnection("localhost", limit, port=ports.pop())


def _list_open_ports(target: Target) -> Iterator[int]:
    for connection in psutil.Process(target.pid).net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.ip in ("::", "0.0.0.0"):  # noqa: S104
            yield connection.laddr.port


def _read_response(connection: http.client.HTTPConnection, handler: str) -> bytes:
    with contextlib.closing(connection):
        connection.request("POST", f"/handler/{handler}")
        answer = connection.getresponse()
        if answer.status == http.client.NOT_FOUND:
            return b"{}"
        if answer.status != http.client.OK:
            raise ConnectionError(f"{handler} returned status {answer.status}")
        content = answer.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConnectionError(f"{handler} returned more than {_MAX_BYTES >> 20} MiB")
        return content
