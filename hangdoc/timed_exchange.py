"""HTTP with one time limit for the whole exchange. The timeout of a socket is for each operation, so a server that sends one byte
a second would never reach it. Here each operation gets the time that is left."""

import http.client
import socket
import ssl
import threading
import time
from typing import Any


class Limit:
    """Ends `seconds` after its creation."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left. Raises TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no complete answer within {self.seconds:g} s")
        return left


class _Timed:
    """Gives each operation of a socket the time that is left. For sockets and for TLS sockets, which http.client reads through
    `recv_into` and writes with `sendall`; that of a TLS socket is many times `send`."""

    limit: Limit

    def recv_into(self, *arguments: Any, **more: Any) -> int:
        self.settimeout(self.limit.left())  # type: ignore[attr-defined]
        return super().recv_into(*arguments, **more)  # type: ignore[misc,no-any-return]

    def send(self, *arguments: Any, **more: Any) -> int:
        self.settimeout(self.limit.left())  # type: ignore[attr-defined]
        return super().send(*arguments, **more)  # type: ignore[misc,no-any-return]

    def sendall(self, *arguments: Any, **more: Any) -> None:
        self.settimeout(self.limit.left())  # type: ignore[attr-defined]
        super().sendall(*arguments, **more)  # type: ignore[misc]


class TimedSocket(_Timed, socket.socket):
    """A socket of an exchange."""

    def __init__(self, limit: Limit, family: int, kind: int = socket.SOCK_STREAM) -> None:
        super().__init__(family, kind)
        self.limit = limit
        self.settimeout(limit.left())


class TimedConnection(http.client.HTTPConnection):
    """An HTTP connection for one exchange. Raises TimeoutError when the limit is over."""

    def __init__(self, host: str, limit: Limit, **more: Any) -> None:
        more["timeout"] = limit.seconds
        super().__init__(host, **more)
        self._create_connection = lambda address, *_: _connect(address, limit)


class TimedTLSConnection(http.client.HTTPSConnection):
    """An HTTPS connection for one exchange. Raises TimeoutError when the limit is over."""

    def __init__(self, host: str, limit: Limit, **more: Any) -> None:
        more["timeout"] = limit.seconds
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        # The handshake has one timeout as a whole, that of the socket below.
        context.sslsocket_class = type("_TimedTLSSocket", (_Timed, ssl.SSLSocket), {"limit": limit})
        super().__init__(host, context=context, **more)
        self._create_connection = lambda address, *_: _connect(address, limit)


def _connect(address: tuple[str, int], limit: Limit) -> TimedSocket:
    """A connection to the first address of a host that accepts one. Raises OSError."""
    problem: OSError = OSError("the host has no address")
    addresses = _resolve_host(address, limit)
    for number, (family, kind, _, _, place) in enumerate(addresses):
        connection = TimedSocket(limit, family, kind)
        try:
            connection.settimeout(limit.left() / (len(addresses) - number))  # the first one may be unreachable
            connection.connect(place)
        except OSError as error:
            problem = error
            connection.close()
        else:
            connection.settimeout(limit.left())
            return connection
    raise problem


def _resolve_host(address: tuple[str, int], limit: Limit) -> list[Any]:
    """The addresses of a host. The resolver has no time limit, so it runs in a thread that can be abandoned."""
    addresses: list[Any] = []
    problems: list[OSError] = []

    def resolve() -> None:
        try:
            addresses.extend(socket.getaddrinfo(*address, 0, socket.SOCK_STREAM))
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=resolve, name="resolver", daemon=True)
    thread.start()
    thread.join(limit.left())
    if problems:
        raise problems[0]
    limit.left()
    return addresses
