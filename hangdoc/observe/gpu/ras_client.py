"""A client of NCCL's RAS service: one question, one answer (src/ras/client_support.cc and client.cc of NCCL).

Every process of a job listens on the same port (SO_REUSEPORT), and the kernel chooses who answers: perhaps a stopped one. A text
protocol: the server acknowledges each command with a line, and closes the connection after the answer. `SET FORMAT` exists from
2.28.7 on; older servers refuse it and answer in text.

The port and the address are a rank's own choice, and any user of the host may listen there. So hangdoc connects only to a socket
on which a process of the rank's user listens in the rank's network namespace, resolves no name, and goes on only if the kernel
says that a process of that user has accepted the connection.
"""

import socket
from typing import NamedTuple

from hangdoc.observe.gpu.ras_answer import MAX_BYTES
from hangdoc.observe.kernel.network_namespace import create_in
from hangdoc.observe.kernel.sock_diag import ALL_STATES, LISTEN, SockDiag
from hangdoc.parse import natural
from hangdoc.timed_exchange import Limit, TimedSocket
from hangdoc.untrusted import size

MOST_ATTEMPTS = 4
"""Connections in a row, for one that does not answer. NCCL's own client tries again too."""
_HELLO_SECONDS = 1.0
"""A process that runs acknowledges within milliseconds; a stopped one never does."""
_LEG_SECONDS = 2
"""NCCL waits so long for its peers, and up to 5 s more (RAS_COLLECTIVE_EXTRA_TIMEOUT_SEC)."""
_ANSWER_SECONDS = 8.0
_LONGEST_LINE = 512
_PIECE_BYTES = 1 << 18
_MOST_LISTENERS = 4_096
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""Addresses of sockets that listen on all, and where these are reached."""


class RasError(Exception):
    """RAS can't be asked, or its answer can't be used. The text is one clause."""


class RasSilent(RasError):
    """The process that took the connection does not answer. Another one may."""


class RasAddress(NamedTuple):
    """What NCCL_RAS_ADDR names."""

    host: str
    port: int


class RasListener(NamedTuple):
    """Where processes of one user listen."""

    namespace_file: str | None
    """As for `create_in`."""
    user: int
    address: str
    port: int
    inodes: frozenset[int]
    """Of the listening sockets."""


def parse_address(text: str) -> RasAddress:
    """The value of NCCL_RAS_ADDR (`ncclSocketGetAddrFromString`): `host:port` or `[::1]:port`. Raises RasError."""
    host, _, digits = text.rpartition(":")
    port = natural(digits)
    if not host or port is None or not 0 < port < 65_536:
        raise RasError("NCCL_RAS_ADDR has no port")
    return RasAddress(host.strip("[]"), port)


def find_listener(namespace_file: str | None, user: int, wanted: RasAddress) -> RasListener:
    """Where processes of a user listen on a port. Raises RasError if none does, and OSError."""
    of_user: dict[str, set[int]] = {}
    others: set[int] = set()
    with SockDiag(namespace_file) as diag:
        for number, listening in enumerate(diag.sockets(1 << LISTEN, wanted.port)):
            if number >= _MOST_LISTENERS:
                raise RasError(f"more than {_MOST_LISTENERS:,} sockets listen on port {wanted.port}")
            place = _ANY.get(listening.local_address, listening.local_address)
            if listening.user != user:
                others.add(listening.user)
            elif _is_meant(place, listening.local_address, wanted.host):
                of_user.setdefault(place, set()).add(listening.inode)
    if of_user:
        place = min(of_user, key=lambda address: (address != "127.0.0.1", address))
        return RasListener(namespace_file, user, place, wanted.port, frozenset(of_user[place]))
    if others:
        raise RasError(f"port {wanted.port} belongs to uid {min(others)}, not to the user of the ranks")
    raise RasError(f"no process of the ranks' user listens on port {wanted.port} (RAS needs NCCL 2.24 or newer)")


def _is_meant(place: str, bound: str, host: str) -> bool:
    """Whether a socket may be the one of this host name. Names other than `localhost` are not resolved."""
    if host == "localhost":
        return place == "::1" or place.startswith("127.")
    return bound in _ANY or place == host or not _is_number(host)


def _is_number(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def ask(listener: RasListener, seconds: float = _ANSWER_SECONDS) -> bytes:
    """The answer of whoever accepts the connection, within `seconds`. Raises RasSilent, RasError and OSError."""
    limit = Limit(seconds)
    family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
    connection = create_in(listener.namespace_file, lambda: TimedSocket(limit, family))
    with connection:
        connection.limit = hello = Limit(min(_HELLO_SECONDS, limit.left()))
        try:
            connection.settimeout(hello.left())
            connection.connect((listener.address, listener.port))
            exchange = _Exchange(connection)
            greeting = exchange.command("CLIENT PROTOCOL 2")
        except (TimeoutError, ConnectionError) as error:
            raise RasSilent(f"the process that took the connection does not answer ({_clause(error)})") from None
        if not greeting.startswith("SERVER PROTOCOL "):
            raise RasError(f"what listens on port {listener.port} is not NCCL's RAS")
        _check_owner(listener, connection)
        connection.limit = limit
        try:
            exchange.command(f"TIMEOUT {_LEG_SECONDS}")
            exchange.command("SET FORMAT json")
            return exchange.answer("VERBOSE STATUS")
        except TimeoutError:
            raise RasError(f"RAS gave no complete answer within {seconds:g} s") from None
        except ConnectionError as error:
            raise RasSilent(f"the process that took the connection closed it ({_clause(error)})") from None


def _check_owner(listener: RasListener, connection: socket.socket) -> None:
    """Raise RasError if another user has accepted the connection. It was accepted, because it was answered: before that, its
    socket belongs to nobody."""
    own_port = connection.getsockname()[1]
    with SockDiag(listener.namespace_file) as diag:
        ends = list(diag.sockets(ALL_STATES & ~(1 << LISTEN), listener.port, own_port))
    users = {end.user for end in ends if end.inode}
    if users - {listener.user}:
        raise RasError(f"a process of uid {min(users - {listener.user})} took the connection to port {listener.port}")
    if not users:
        raise RasSilent("the process that took the connection closed it")


class _Exchange:
    """Commands and their answers on one connection. Raises OSError, and RasError for what is too long."""

    def __init__(self, connection: TimedSocket) -> None:
        self._connection = connection
        self._read = bytearray()
        self._piece = memoryview(bytearray(_PIECE_BYTES))

    def command(self, text: str) -> str:
        """The line with which the server acknowledges a command: `OK`, or `ERROR: ...` for an unknown one."""
        self._connection.sendall(f"{text}\n".encode())
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > _LONGEST_LINE:
                raise RasError("RAS sent a line that is too long")
            if not self._receive():
                raise ConnectionResetError("it was closed")
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line.decode("ascii", "replace").rstrip("\r")

    def answer(self, text: str) -> bytes:
        """All that the server sends after the last command until it closes the connection."""
        self._connection.sendall(f"{text}\n".encode())
        while self._receive():
            if len(self._read) > MAX_BYTES:
                raise RasError(f"the answer of RAS has more than {size(MAX_BYTES)}")
        if not self._read:
            raise ConnectionResetError("it was closed")
        return bytes(self._read)

    def _receive(self) -> int:
        count = self._connection.recv_into(self._piece)
        self._read += self._piece[:count]
        return count


def _clause(error: OSError) -> str:
    return error.strerror or str(error)
