"""What NCCL's RAS answers to a plain client: raw, as evidence for hangdoc's own client.

NCCL's documentation of RAS describes the protocol: lines of text over TCP, and the server closes at the end. A stopped process
may have accepted the connection, so every step has a limit.
"""

import socket
import time
from pathlib import Path

QUESTIONS = {
    "plain": ("STATUS",),
    "verbose": ("VERBOSE STATUS",),
    "json": ("SET FORMAT json", "VERBOSE STATUS"),
}
_CONNECT_SECONDS, _READ_SECONDS = 3.0, 5.0
_AGAIN_SECONDS = 2.0


def ask(port: int, lines: tuple[str, ...]) -> str:
    """The whole answer; a failure is its last line, which begins with `!!`."""
    began, answer = time.monotonic(), b""
    try:
        with socket.create_connection(("localhost", port), _CONNECT_SECONDS) as server:
            server.settimeout(_READ_SECONDS)
            for line in ("CLIENT PROTOCOL 2", "TIMEOUT 3", *lines[:-1]):
                server.sendall(f"{line}\n".encode())
                answer += server.recv(4096)
            server.sendall(f"{lines[-1]}\n".encode())
            while block := server.recv(1 << 16):
                answer += block
    except OSError as error:
        answer += f"\n!! {error!r}".encode()
    return f"{answer.decode('utf-8', 'replace')}\n!! took {time.monotonic() - began:.2f} s\n"


def ask_all(port: int, folder: Path) -> None:
    """Write the answer to each question into `ras-NAME.txt`, and a little later the counts again."""
    for name, lines in QUESTIONS.items():
        (folder / f"ras-{name}.txt").write_text(ask(port, lines))
    time.sleep(_AGAIN_SECONDS)
    (folder / "ras-verbose-again.txt").write_text(ask(port, QUESTIONS["verbose"]))
