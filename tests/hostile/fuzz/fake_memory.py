"""The memory of a process that does not exist: pages by address, for hangdoc.observe.memory.memory."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

from hangdoc.observe.memory import locate, memory
from hangdoc.procfs import open_kernel_file

PAGE = 4096
Pages = dict[int, bytes | bytearray]
"""By address."""


@contextlib.contextmanager
def memory_of(pages: Pages) -> Iterator[None]:
    """hangdoc.observe.memory.memory reads these pages, whatever the pid. What was learned of other processes is forgotten."""

    def pread(_file: int, size: int, address: int) -> bytes:
        if not -(1 << 63) <= address < 1 << 63:
            raise OverflowError
        return _read(pages, size, address)

    with _replaced(SimpleNamespace(close=lambda _: None, pread=pread), lambda path: 0):
        yield


@contextlib.contextmanager
def recorded(pages: Pages) -> Iterator[None]:
    """Every page that hangdoc reads of a real process is added to `pages`."""

    def pread(file: int, size: int, address: int) -> bytes:
        for start in range(address & -PAGE, address + size, PAGE):
            if start not in pages:
                with contextlib.suppress(OSError):
                    pages[start] = os.pread(file, PAGE, start)
        return os.pread(file, size, address)

    with _replaced(SimpleNamespace(close=os.close, pread=pread), open_kernel_file):
        yield


def copied(source: Path, pid: int, root: Path) -> None:
    """A /proc at `root` with what hangdoc reads of `pid` beside its memory."""
    (root / str(pid)).mkdir(parents=True)
    (root / str(pid) / "maps").write_bytes((source / str(pid) / "maps").read_bytes())
    (root / str(pid) / "exe").symlink_to(os.readlink(source / str(pid) / "exe"))


def _read(pages: Pages, size: int, address: int) -> bytes:
    out = bytearray()
    while size > 0:
        page = pages.get(address & -PAGE)
        if page is None:
            if out:
                break
            raise OSError(errno.EIO, "Input/output error")
        part = page[address % PAGE : address % PAGE + size]
        out += part
        address, size = address + len(part), size - len(part)
    return bytes(out)


@contextlib.contextmanager
def _replaced(system: SimpleNamespace, opened: Callable[[str], int]) -> Iterator[None]:
    tables = (locate._layouts, locate._places)
    for table in tables:
        table.clear()
    try:
        memory.os = system  # type: ignore[assignment]
        memory.open_kernel_file = opened  # type: ignore[attr-defined]
        yield
    finally:
        memory.os = os  # type: ignore[attr-defined]
        memory.open_kernel_file = open_kernel_file  # type: ignore[attr-defined]
        for table in tables:
            table.clear()
