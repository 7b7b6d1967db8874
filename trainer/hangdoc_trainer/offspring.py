"""Helpers to start a real run: a free port, a mark that identifies all its processes, and a reliable way to end them."""

import os
import signal
import socket
import time
import uuid
from pathlib import Path

MARK = "HANGDOC_STARTED_BY"


class Offspring:
    """All processes of one run (launchers, ranks and their children), identified by a mark in their environment."""

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex

    @property
    def mark(self) -> dict[str, str]:
        """The variable to add to the environment of every started process."""
        return {MARK: self._value}

    def processes(self) -> list[tuple[int, dict[str, str]]]:
        """(pid, initial environment) of the processes that exist now."""
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
        """Kill all of them, also those that they start meanwhile, and stopped ones."""
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
    """A free TCP port, reserved until this process ends.

    The socket stays bound, with SO_REUSEADDR and without listening. A listener that also sets SO_REUSEADDR (torch's store,
    Python's servers) can use the port, and the kernel does not give it to processes that ask for any port (Linux,
    net/ipv4/inet_connection_sock.c). Without this, another run could take it in the seconds until torchrun listens."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _RESERVED.append(holder)
    port: int = holder.getsockname()[1]
    return port


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
