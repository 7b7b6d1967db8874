"""A server that speaks the protocol of NCCL's RAS, as every version and as a broken one does (src/ras/client_support.cc).

It imports the standard library only: its source is also run by Pythons of other users. `serve` is what a process of a test calls;
`running` starts such a process.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class Served:
    """What the server does. Written as JSON for the process that serves."""

    def __init__(
        self,
        answers: list[str],
        *,
        texts: list[str] | None = None,
        knows_json: bool = True,
        mode: str = "plain",
        address: str = "127.0.0.1",
        port: int = 28028,
    ) -> None:
        """`answers` in JSON form, one for each connection; the last one is repeated. `texts` are those in text form. `mode`:
        `plain`; `slow`, byte by byte; `endless`; `silent`, which acknowledges nothing; `open`, which does not close; `cut`."""
        self.answers, self.texts, self.knows_json = answers, texts or answers, knows_json
        self.mode, self.address, self.port = mode, address, port

    def text(self) -> str:
        return json.dumps(self.__dict__)


def serve(written: str) -> None:
    """Listen, in a thread. `@PID@` in an answer stands for the pid of this process."""
    asked = json.loads(written)
    family = socket.AF_INET6 if ":" in asked["address"] else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((asked["address"], asked["port"]))
    listening.listen(128)
    threading.Thread(target=_accept, args=(listening, asked), daemon=True).start()


def _accept(listening: socket.socket, asked: dict) -> None:  # type: ignore[type-arg]
    kept = []
    while True:
        connection, _ = listening.accept()
        kept.append(connection)
        threading.Thread(target=_answer, args=(connection, asked, len(kept) - 1), daemon=True).start()


def _answer(connection: socket.socket, asked: dict, number: int) -> None:  # type: ignore[type-arg]
    with contextlib.suppress(OSError):
        mode, form = asked["mode"], "texts"
        if mode == "silent":
            return
        lines = connection.makefile("r", newline="\n")
        for line in lines:
            command = line.strip().lower()
            if command.startswith("client protocol "):
                connection.sendall(b"SERVER PROTOCOL 2\n")
            elif command.startswith("timeout "):
                connection.sendall(b"OK\n")
            elif command == "set format json" and asked["knows_json"]:
                form = "answers"
                connection.sendall(b"OK\n")
            elif command in ("status", "verbose status"):
                break
            else:
                connection.sendall(b"ERROR: Unknown command " + line.encode())
        else:
            return
        answers = asked[form]
        raw = answers[min(number, len(answers) - 1)].replace("@PID@", str(os.getpid())).encode()
        _send(connection, raw, mode)
        if mode != "open":
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def _send(connection: socket.socket, raw: bytes, mode: str) -> None:
    if mode == "slow":
        for at in range(len(raw)):
            connection.sendall(raw[at : at + 1])
            time.sleep(0.001)
    elif mode == "endless":
        while True:
            connection.sendall(raw * 100)
    else:
        connection.sendall(raw[: len(raw) // 2] if mode == "cut" else raw)


SOURCE = Path(__file__).read_text() if "__file__" in globals() else ""
"""For `exec` in another process."""


@contextlib.contextmanager
def running(served: Served, *before: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that serves, which is ended with the block. `before` are words in front of its command."""
    program = f"{SOURCE}\nserve({served.text()!r})\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [*before, sys.executable, "-I", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child
        finally:
            os.killpg(child.pid, signal.SIGKILL)
