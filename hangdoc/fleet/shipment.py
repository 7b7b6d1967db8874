"""Hangdoc's single file on its way to one host: what is sent, in which order, and how much of it is in memory."""

import functools
import hashlib
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hangdoc.fleet import find_python, loader

_CHUNK = 1 << 16
"""What is in memory of the file for each host, in bytes: as much as a pipe takes."""
_PART, _SPARE = 1 << 20, 16 << 20
_PATIENCE_SECONDS = 900
"""After how long without a request a host removes hangdoc. Then the next look brings it again."""


class ShipmentError(Exception):
    """The file cannot be brought. The text gives the problem and the remedy."""


@dataclass(frozen=True)
class Shipment:
    """The file, and what a host must know about it."""

    path: Path
    descriptor: int
    size: int
    space: int
    """Bytes that the file and its cache take on a host."""

    @functools.cached_property
    def digest(self) -> str:
        """Its SHA-256. Only who brings the file needs it, and that takes a tenth of a second."""
        found, at = hashlib.sha256(), 0
        while part := os.pread(self.descriptor, _PART, at):
            found.update(part)
            at += len(part)
        return found.hexdigest()

    def command(self) -> tuple[str, ...]:
        """The words that receive and run it on a host."""
        return find_python.command(str(self.size), self.digest, str(self.space), str(_PATIENCE_SECONDS))


@functools.cache
def open_shipment(path: Path) -> Shipment:
    """The file at `path`, which stays open: a new version of it in its place is not sent. Raises ShipmentError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with open(descriptor, "rb", closefd=False) as file:
            unpacked = sum(entry.file_size for entry in zipfile.ZipFile(file).infolist())
        size = os.stat(descriptor).st_size
    except (OSError, zipfile.BadZipFile) as error:
        raise ShipmentError(
            f"{path} cannot be brought to other hosts: {error}. Name another hangdoc.pyz with HANGDOC_PYZ."
        ) from None
    return Shipment(path, descriptor, size, size + unpacked + _SPARE)


def request(arguments: Iterable[str], seconds: float, *, stdin: bool = False) -> bytes:
    """The line that has hangdoc run there (`loader._serve`)."""
    return msgspec.json.encode({"arguments": tuple(arguments), "seconds": seconds, "stdin": stdin}) + b"\n"


class Delivery:
    """Sends the file through one connection of ClusterShell when the host wants it, and then the lines for hangdoc."""

    def __init__(self, shipment: Shipment, worker: Any) -> None:
        self.worker = worker
        (self.client,) = worker._engine_clients()
        self.python: str | None = None
        """The interpreter that the host uses; None as long as it does not want the file."""
        self._shipment, self._sent = shipment, 0
        self._lines = b""

    @property
    def complete(self) -> bool:
        """Whether the whole file has been written to the connection."""
        return self._sent == self._shipment.size

    def feed(self, line: bytes) -> bool:
        """Begin if this line of the host asks for the file. Returns whether it does."""
        if self.python is not None or not line.startswith(loader.WANTS.encode()):
            return False
        self.python = line[len(loader.WANTS) :].decode("utf-8", "replace").strip()[:200]
        self.worker.write(self._next())
        return True

    def continue_sending(self) -> None:
        """Send the next part, if the last one is written. ClusterShell must call it after each write."""
        stream = self.client.streams.get("stdin")
        if self.python is not None and stream is not None and not stream.wbuf:
            stream.wbuf = self._next()  # `write` would call this again, as deep as the file has parts

    def _next(self) -> bytes:
        part = os.pread(self._shipment.descriptor, min(_CHUNK, self._shipment.size - self._sent), self._sent)
        self._sent += len(part)
        if self.complete:
            part, self._lines = part + self._lines, b""
        return part

    def write(self, line: bytes) -> None:
        """Send a line, after the file."""
        if self.complete:
            self.worker.write(line)
        else:
            self._lines += line
