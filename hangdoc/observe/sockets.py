"""TCP connections of every process of interest, with their memory: how long ago the last byte passed.

Through sock_diag(7) by pyroute2, inside each process's own network namespace; tied to processes by socket inode.
"""

import ctypes
import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hangdoc.observe.listener import listener
from hangdoc.observe.procfs import Gone, ProcError, network_of
from hangdoc.observe.scene import Evidence, Scene
from hangdoc.parse import natural
from hangdoc.snapshot import Connection, Connections, Listener, Unavailable

# include/net/tcp_states.h
_STATES = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT",
    7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING", 12: "NEW_SYN_RECV",
}  # fmt: skip
_ALL_EXTENSIONS = 0xFF
_LISTEN = 10
_CLONE_NEWNET = 0x40000000
_INODE = re.compile(r"socket:\[(\d+)\]")


class Sockets:
    """The probe."""

    name = "sockets"

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], tuple[int, int] | None] = {}
        self._listeners: list[Listener] = []
        self._connections: list[Connection] = []
        self._failed: str | None = None

    def open(self, scene: Scene) -> None:
        """Nothing: importing pyroute2 takes a quarter of a second, and is left to the window."""

    def during(self, scene: Scene) -> None:
        """Remember how many bytes have passed."""
        for (namespace, inode), raw in self._look(scene).items():
            self._first[namespace, inode] = _moved(raw)

    def close(self, scene: Scene) -> None:
        """Read all sockets and tie them to their processes."""
        sockets = self._look(scene)
        if not sockets:
            return
        self._listeners = listeners(scene, sockets)
        for target in scene.alive():
            namespace = network_of(scene.proc, target.pid)
            try:
                links = scene.proc.links(f"{target.pid}/fd")
            except Gone:
                continue  # it ended while we looked, and took its sockets along
            except ProcError as error:
                scene.problems.append(f"sockets of pid {target.pid}: {error}")
                continue
            for inode in {int(match[1]) for link in links.values() if (match := _INODE.match(link))}:
                raw = sockets.get((namespace, inode))
                if raw is not None:
                    self._connections.append(self._connection(target.pid, namespace, inode, raw))

    def evidence(self, scene: Scene) -> Iterable[Evidence]:
        """All of them, for the host."""
        if self._failed and not self._connections:
            yield None, "connections", Unavailable(reason=self._failed)
        else:
            ordered = sorted(self._connections, key=lambda c: (c.pid, c.local_port, c.remote_port))
            yield None, "connections", Connections(connections=tuple(ordered), listeners=tuple(self._listeners))

    def _look(self, scene: Scene) -> dict[tuple[str, int], Any]:
        """Raw sockets by (namespace, inode), of every network namespace that a target lives in."""
        found: dict[tuple[str, int], Any] = {}
        own = _own_namespace()
        seen: dict[str, int] = {}
        for target in scene.alive():
            seen.setdefault(network_of(scene.proc, target.pid), target.pid)
        for namespace, pid in seen.items():
            try:
                inside = None if namespace in (own, "") else f"{scene.proc.root}/{pid}/ns/net"
                for raw in _dump(inside):
                    found[namespace, raw["idiag_inode"]] = raw
            except Exception as error:  # netlink libraries raise what they like
                self._failed = f"sock_diag: {error}"
        return found

    def _connection(self, pid: int, namespace: str, inode: int, raw: Any) -> Connection:
        info = raw.get_attr("INET_DIAG_INFO") or {}
        before, now = self._first.get((namespace, inode)), _moved(raw)
        listening = raw["idiag_state"] == 10
        return Connection(
            pid=pid,
            namespace=namespace,
            inode=inode,
            state=_STATES.get(raw["idiag_state"], str(raw["idiag_state"])),
            local_address=plain_address(raw["idiag_src"]),
            local_port=raw["idiag_sport"],
            remote_address=plain_address(raw["idiag_dst"]),
            remote_port=raw["idiag_dport"],
            receive_queue_bytes=0 if listening else raw["idiag_rqueue"],
            send_queue_bytes=0 if listening else raw["idiag_wqueue"],
            bytes_moved=None if before is None or now is None else max(0, now[0] - before[0]),
            last_sent_ms=info.get("tcpi_last_data_sent"),
            last_received_ms=info.get("tcpi_last_data_recv"),
            retransmits=info.get("tcpi_retransmits"),
            backoff=info.get("tcpi_backoff"),
            unacked=info.get("tcpi_unacked"),
            rtt_us=info.get("tcpi_rtt"),
            busy_ms=None if before is None or now is None else max(0, now[1] - before[1]) // 1000,
            delivery_rate_bytes=info.get("tcpi_delivery_rate") or None,
        )


def _moved(raw: Any) -> tuple[int, int] | None:
    """(bytes in both directions, microseconds with data under way) since the connection began."""
    info = raw.get_attr("INET_DIAG_INFO")
    if not info:
        return None
    return info["tcpi_bytes_acked"] + info["tcpi_bytes_received"], info.get("tcpi_busy_time") or 0


def listeners(scene: Scene, sockets: dict[tuple[str, int], Any]) -> list[Listener]:
    """Who listens on the master ports of the ranks and launchers among the targets. Owners outside of them are looked
    for among all processes of the host, which only a port held by a stranger costs."""
    ports = {t.identity.master_port for t in scene.targets.values() if t.identity is not None}
    ports |= {
        natural(t.launch.endpoint.rpartition(":")[2]) for t in scene.targets.values() if t.launch and t.launch.endpoint
    }
    wanted = {
        (namespace, inode): raw["idiag_sport"]
        for (namespace, inode), raw in sockets.items()
        if raw["idiag_state"] == _LISTEN and raw["idiag_sport"] in ports
    }
    found: dict[tuple[str, int], Listener] = {}
    for pid in [*scene.targets, *scene.proc.pids()]:
        if len(found) == len(wanted):
            break
        try:
            namespace = network_of(scene.proc, pid)
            inodes = {int(m[1]) for link in scene.proc.links(f"{pid}/fd").values() if (m := _INODE.match(link))}
        except ProcError:
            continue
        for key in ((namespace, inode) for inode in inodes if (namespace, inode) in wanted):
            if key not in found:
                found[key] = listener(scene.proc, wanted[key], namespace, pid)
    unknown = [Listener(port=port, namespace=key[0], pid=None) for key, port in wanted.items() if key not in found]
    return sorted([*found.values(), *unknown], key=lambda one: (one.port, one.namespace, one.pid or 0))


def _own_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def _dump(namespace_file: str | None) -> list[Any]:
    if namespace_file is None:
        return _dump_here()
    # setns(2) acts on one thread; one that ends afterwards leaves the others where they are.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_dump_in, namespace_file).result()


def _dump_in(namespace_file: str) -> list[Any]:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace_file) as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise PermissionError(f"entering a rank's network namespace: {os.strerror(ctypes.get_errno())}")
    return _dump_here()


def _dump_here() -> list[Any]:
    from pyroute2 import DiagSocket

    with DiagSocket() as diag:
        diag.bind()
        return [
            raw
            for family in (socket.AF_INET, socket.AF_INET6)
            for raw in diag.get_sock_stats(family=family, extensions=_ALL_EXTENSIONS)
        ]


def plain_address(text: str) -> str:
    """An address in one spelling: IPv4 mapped into IPv6 (`::ffff:127.0.0.1`) is the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
