"""Test connections between nodes. The listener echoes and counts bytes; the other node measures. Every wait has a time limit."""

import contextlib
import errno
import socket
import struct
import threading
import time
from collections.abc import Iterable

from hangdoc.preflight.plan import Link

CONNECT_SECONDS = 3.0
SEND_SECONDS = 0.5
_PINGS = 5
_CHUNK = b"\0" * (1 << 16)
_BUFFER = 1 << 19
"""Limit for the bytes in flight, so that a slow link can send them in time."""
_COUNT = struct.Struct("!Q")
_IP_MTU = 14  # linux/in.h; Python has no name for it
_SEND, _PING = b"s", b"p"


class PortListener:
    """Accepts test connections on a port (0: an ephemeral one) of all addresses, until it is closed."""

    def __init__(self, port: int = 0) -> None:
        """Raises OSError if the port is in use."""
        self._socket = socket.create_server(("", port), backlog=128)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True, name="preflight-listener").start()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=_answer, args=(accepted,), daemon=True).start()


def _answer(accepted: socket.socket) -> None:
    with accepted, contextlib.suppress(OSError):
        accepted.settimeout(CONNECT_SECONDS)
        kind = accepted.recv(1)
        if kind == _PING:
            for _ in range(_PINGS):
                if not accepted.recv(1):
                    return
                accepted.sendall(b"x")
        elif kind == _SEND:
            total = 0
            while chunk := accepted.recv(1 << 20):
                total += len(chunk)
            accepted.sendall(_COUNT.pack(total))


def reach(caller: str, peers: Iterable[tuple[str, str, int]]) -> list[Link]:
    """Connect to all peers (name, address, port) in parallel. Each connection may take CONNECT_SECONDS."""
    wanted = list(peers)
    links: list[Link | None] = [None] * len(wanted)

    def connect_to(index: int) -> None:
        name, address, port = wanted[index]
        links[index] = _connect(caller, name, address, port)

    threads = [threading.Thread(target=connect_to, args=(index,), daemon=True) for index in range(len(wanted))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + CONNECT_SECONDS + 2
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [
        link or Link(caller=caller, called=name, target=f"{address}:{port}", outcome="timeout")
        for link, (name, address, port) in zip(links, wanted, strict=True)
    ]


def _connect(caller: str, name: str, address: str, port: int) -> Link:
    target = f"{address}:{port}"
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS) as opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.sendall(_PING)
            times = []
            for _ in range(_PINGS):
                began = time.perf_counter()
                opened.sendall(b"x")
                if not opened.recv(1):
                    return Link(caller=caller, called=name, target=target, outcome="another program listens there")
                times.append(time.perf_counter() - began)
            mtu = opened.getsockopt(socket.IPPROTO_IP, _IP_MTU) if opened.family == socket.AF_INET else None
            return Link(
                caller=caller, called=name, target=target, outcome="ok", rtt_ms=round(min(times) * 1000, 3), mtu=mtu
            )
    except OSError as error:
        return Link(caller=caller, called=name, target=target, outcome=outcome(error))


def outcome(error: OSError) -> str:
    """How a connection failed: `timeout`, `refused`, `unreachable`, or the system's error message."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "unreachable"
    return error.strerror or type(error).__name__


def throughput(address: str, port: int) -> float | None:
    """Mbit/s to a PortListener, measured over SEND_SECONDS; None if the connection fails."""
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS) as call:
            call.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            call.sendall(_SEND)
            began = time.perf_counter()
            while time.perf_counter() - began < SEND_SECONDS:
                call.sendall(_CHUNK)
            call.shutdown(socket.SHUT_WR)
            call.settimeout(CONNECT_SECONDS + 5)
            raw = call.recv(_COUNT.size, socket.MSG_WAITALL)
            took = time.perf_counter() - began
            return round(_COUNT.unpack(raw)[0] * 8 / 1e6 / took, 2) if len(raw) == _COUNT.size else None
    except OSError:
        return None
