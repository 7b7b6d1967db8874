"""TCP connections of every observed process, and how long ago the last byte passed.

sock_diag(7) lists the sockets of each process's network namespace. Inodes assign them to processes.
"""

import os
import time
from collections.abc import Iterable

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.kernel.process_table import launcher_gone, read_ancestry
from hangdoc.observe.kernel.sock_diag import LISTEN, SockDiag, TcpInfo, TcpSocket
from hangdoc.parse import natural
from hangdoc.phrases import numbers
from hangdoc.procfs import Denied, Gone, ProcError, ProcFS, age, network_of
from hangdoc.regex import regex
from hangdoc.snapshot import Connection, Connections, Listener, Unavailable

# include/net/tcp_states.h
_STATES = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT",
    7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING", 12: "NEW_SYN_RECV",
}  # fmt: skip
_INODE = regex(r"socket:\[(\d+)\]")
_OWNER_READINGS = 8
"""Which sockets a process owns is looked up again after this number of readings, or when a new socket appears on the host."""
_Key = tuple[str, int]
"""Network namespace and inode of a socket."""


class Sockets:
    """The probe. It can be used for several windows in a row: it keeps its netlink sockets and the owners of TCP sockets."""

    name = "sockets"

    def __init__(self) -> None:
        self._first: dict[_Key, TcpSocket] = {}
        self._second: dict[_Key, TcpSocket] = {}
        self._listeners: list[Listener] = []
        self._evidence: Connections | Unavailable = Unavailable(reason="not looked at")
        """Kept with its index for as long as it is not read again."""
        self._read_at, self._cost, self._window = float("-inf"), 0.0, 0.0
        """When the last reading began (monotonic), the CPU seconds that it took, and the time since the one before it."""
        self._failed: str | None = None
        self._diags: dict[str, SockDiag] = {}
        self._owned: dict[int, tuple[str, frozenset[int]]] = {}
        """Namespace and inodes of each process's sockets."""
        self._lookups_left = 0

    def open(self, observation: Observation) -> None:
        """Read how many bytes have passed."""
        self._read_at = time.monotonic()
        before, self._first = self._first, self._read_all(observation)
        if not self._first.keys() <= before.keys():
            self._lookups_left = 0

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read all sockets again, and assign them to their processes."""
        now, used = time.monotonic(), time.thread_time()
        self._window, self._read_at = now - self._read_at, now
        self._evidence = Unavailable(reason="reading them has not ended")
        self._read_again(observation)
        self._cost = time.thread_time() - used

    def is_affordable(self, share: float) -> bool:
        """Whether one more reading makes their cost at most this share of a core."""
        return self._cost <= share * (time.monotonic() - self._read_at)

    @property
    def seconds_ago(self) -> float:
        """How long ago they were read."""
        return round(time.monotonic() - self._read_at, 2)

    def _read_again(self, observation: Observation) -> None:
        self._second = sockets = self._read_all(observation)
        connections: list[Connection] = []
        self._lookups_left -= 1
        if self._lookups_left < 0 or not sockets.keys() <= self._first.keys():
            self._owned.clear()
            self._lookups_left = _OWNER_READINGS
            self._listeners = listeners(observation, sockets)
        refused: list[int] = []
        for target in observation.alive() if sockets else ():
            try:
                namespace, inodes = self._find_sockets_of(observation, target.pid)
            except Denied:
                refused.append(target.pid)
                continue
            for inode in inodes:
                key = (namespace, inode)
                if (raw := sockets.get(key)) is not None:
                    connections.append(_describe_connection(target.pid, key, self._first.get(key), raw))
        if self._failed and not connections:
            self._evidence = Unavailable(reason=self._failed)
        else:
            connections.sort(key=lambda c: (c.pid, c.local_port, c.remote_port))
            self._evidence = Connections(
                connections=tuple(connections),
                listeners=tuple(self._listeners),
                window_seconds=round(self._window, 3),
            )
        if refused:
            observation.problems.append(
                f"sockets of pid{'s' * (len(refused) > 1)} {numbers(refused)}: permission denied"
            )

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = self._second

    def release(self) -> None:
        """Close the netlink sockets."""
        for diag in self._diags.values():
            diag.close()
        self._diags.clear()

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """All connections and listeners of the host."""
        yield None, "connections", self._evidence

    def _find_sockets_of(self, observation: Observation, pid: int) -> tuple[str, frozenset[int]]:
        """Network namespace and inodes of a process's sockets. Raises Denied."""
        owned = self._owned.get(pid)
        if owned is None:
            try:
                owned = self._owned[pid] = (network_of(observation.proc, pid), _read_inodes(observation, pid))
            except Denied:
                raise
            except Gone:  # it has ended, and so have its sockets
                return "", frozenset()
            except ProcError as error:
                observation.problems.append(f"sockets of pid {pid}: {error}")
                return "", frozenset()
        return owned

    def _read_all(self, observation: Observation) -> dict[_Key, TcpSocket]:
        """All sockets of the network namespaces of all targets."""
        sockets: dict[_Key, TcpSocket] = {}
        own = network_of(observation.proc, os.getpid())
        pids: dict[str, int] = {}
        for target in observation.alive():
            owned = self._owned.get(target.pid)
            pids.setdefault(owned[0] if owned is not None else network_of(observation.proc, target.pid), target.pid)
        for namespace, pid in pids.items():
            try:
                if namespace not in self._diags:
                    elsewhere = namespace not in (own, "")
                    self._diags[namespace] = SockDiag(f"{observation.proc.root}/{pid}/ns/net" if elsewhere else None)
                for socket in self._diags[namespace].sockets():
                    sockets[namespace, socket.inode] = socket
            except OSError as error:
                self._failed = f"sock_diag: {error.strerror or error}"
                if namespace in self._diags:
                    self._diags.pop(namespace).close()
        return sockets


def _describe_connection(pid: int, key: _Key, before: TcpSocket | None, now: TcpSocket) -> Connection:
    info, earlier = now.info, before.info if before is not None else None
    listening = now.state == LISTEN
    moved = busy = None
    if info is not None and earlier is not None:
        moved = max(0, _bytes(info) - _bytes(earlier))
        busy = max(0, info.busy_us - earlier.busy_us) // 1000
    return Connection(
        pid=pid,
        namespace=key[0],
        inode=key[1],
        state=_STATES.get(now.state, str(now.state)),
        local_address=now.local_address,
        local_port=now.local_port,
        remote_address=now.remote_address,
        remote_port=now.remote_port,
        receive_queue_bytes=0 if listening else now.receive_queue,
        send_queue_bytes=0 if listening else now.send_queue,
        bytes_moved=moved,
        last_sent_ms=info.last_sent_ms if info is not None else None,
        last_received_ms=info.last_received_ms if info is not None else None,
        retransmits=info.retransmits if info is not None else None,
        backoff=info.backoff if info is not None else None,
        unacked=info.unacked if info is not None else None,
        rtt_us=info.rtt_us if info is not None else None,
        busy_ms=busy,
        delivery_rate_bytes=(info.delivery_rate or None) if info is not None else None,
        nothing_sent=info is not None and info.bytes_received > 0 and not info.bytes_acked and not now.send_queue,
    )


def _bytes(info: TcpInfo) -> int:
    """Payload bytes in both directions since the start of the connection."""
    return info.bytes_acked + info.bytes_received


def _read_inodes(observation: Observation, pid: int) -> frozenset[int]:
    links = observation.proc.links(f"{pid}/fd").values()
    return frozenset(int(match[1]) for link in links if (match := _INODE.match(link)))


def listeners(observation: Observation, sockets: dict[_Key, TcpSocket]) -> list[Listener]:
    """The processes that listen on the master ports of the ranks and launchers. The targets are searched first, and all other
    processes of the host only if a port belongs to none of them."""
    ports = {t.identity.master_port for t in observation.targets.values() if t.identity is not None}
    ports |= {
        natural(t.launch.endpoint.rpartition(":")[2])
        for t in observation.targets.values()
        if t.launch and t.launch.endpoint
    }
    wanted = {key: raw.local_port for key, raw in sockets.items() if raw.state == LISTEN and raw.local_port in ports}
    listeners_by_key: dict[_Key, Listener] = {}
    for pid in [*observation.targets, *observation.proc.pids()]:
        if len(listeners_by_key) == len(wanted):
            break
        try:
            namespace = network_of(observation.proc, pid)
            inodes = _read_inodes(observation, pid)
        except ProcError:
            continue
        for key in ((namespace, inode) for inode in inodes if (namespace, inode) in wanted):
            if key not in listeners_by_key:
                listeners_by_key[key] = describe_listener(observation.proc, wanted[key], namespace, pid)
    unknown = [
        Listener(port=port, namespace=key[0], pid=None) for key, port in wanted.items() if key not in listeners_by_key
    ]
    return sorted(
        [*listeners_by_key.values(), *unknown],
        key=lambda listener: (listener.port, listener.namespace, listener.pid or 0),
    )


def find_first_holder(proc: ProcFS, pid: int, fd: int) -> int:
    """Of the processes that hold the socket with this descriptor of a process, the one that started first: it has made the
    socket, and those that it forked have inherited it."""
    try:
        socket = proc.link(f"{pid}/fd/{fd}")
    except ProcError:
        return pid
    holders: dict[int, int] = {}
    for each in proc.pids():
        try:
            if socket in proc.links(f"{each}/fd").values():
                holders[each] = proc.stat(str(each)).start_ticks
        except ProcError:
            continue
    return min(holders, key=lambda each: (holders[each], each), default=pid)


def describe_listener(proc: ProcFS, port: int, namespace: str, pid: int | None) -> Listener:
    """Describe the process that listens on `port`, as far as it can be read. `pid` is None if it was not found."""
    table = read_ancestry(proc, pid or 0)
    if pid is None or pid not in table:
        return Listener(port=port, namespace=namespace, pid=pid)
    entry = table[pid]
    return Listener(
        port=port,
        namespace=namespace,
        pid=pid,
        name=entry.stat.name,
        argv=entry.argv,
        orphan=launcher_gone(proc, table, pid),
        started_seconds_ago=age(proc, entry.stat.start_ticks),
    )
