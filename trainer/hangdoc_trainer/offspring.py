"""What starting a real run takes: a free port, a mark by which all its processes are known, and their certain end."""

import os
import signal
import socket
import time
import uuid
from pathlib import Path

MARK = "HANGDOC_STARTED_BY"


class Offspring:
    """All processes of one run, launchers, ranks and whatever they started, by a mark in their environment."""

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex

    @property
    def mark(self) -> dict[str, str]:
        """What to add to the environment of whatever is started."""
        return {MARK: self._value}

    def processes(self) -> list[tuple[int, dict[str, str]]]:
        """Those that are there, each with the environment it was started with."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    raw = (entry / "environ").read_bytes().decode("utf-8", "replace")
                except OSError:
                    continue
                environment = dict(pair.partition("=")[::2] for pair in raw.split("\0"))
                if environment.get(MARK) == self._value:
                    found.append((int(entry.name), environment))
        return found

    def end(self) -> None:
        """Kill all of them, and those they start meanwhile; a stopped process dies of it too."""
        for _ in range(40):
            ours = self.processes()
            for pid, _environment in ours:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not ours:
                return
            time.sleep(0.05)


_RESERVED: list[socket.socket] = []


def free_port() -> int:
    """A TCP port that nobody listens on, kept for this process until it ends.

    The socket stays bound, with SO_REUSEADDR and without listening. A listener that sets SO_REUSEADDR as well (torch's store,
    Python's servers) can have the port, and the kernel gives it to nobody who asks for any port (Linux,
    net/ipv4/inet_connection_sock.c). Without this, another run takes it in the seconds until torchrun listens.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _RESERVED.append(holder)
    port: int = holder.getsockname()[1]
    return port


def parent(pid: int) -> int:
    """The parent of a process; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
