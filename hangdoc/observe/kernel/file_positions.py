"""How far a process is in the files that it has open: the only trace of reading from the page cache, or of writing a little.

Source: /proc/PID/fdinfo, `pos` and `flags` (proc_pid_fdinfo(5)). Who opens a file again and again to look for news has no such
position. Standard streams do not count: what a process says there is no work. Nor do files of the kernel, and devices.
"""

import contextlib
import os
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import FileProgress

_MAX_DESCRIPTORS = 1_024
"""Of a process with more, most are sockets, and it has no positions here."""
_MAX_FILES = 64
_STANDARD_STREAMS = frozenset({"0", "1", "2"})
_OF_THE_KERNEL = ("/proc/", "/sys/", "/dev/")


class Position(NamedTuple):
    """How far a process is in a file."""

    bytes: int
    writes: bool
    """Whether the file is open for writing."""
    appends: bool
    """Whether each write goes to its end, as those to a log do."""


Positions = dict[tuple[str, str], Position]
"""By descriptor and path."""


def read_positions(proc: ProcFS, pid: int) -> Positions:
    """The positions in the open files of a process; none for what can't be read, or if it has very many."""
    positions: Positions = {}
    with contextlib.suppress(ProcError):
        files = (
            (descriptor, path)
            for descriptor, path in proc.links(f"{pid}/fd", _MAX_DESCRIPTORS).items()
            if descriptor not in _STANDARD_STREAMS and path.startswith("/") and not path.startswith(_OF_THE_KERNEL)
        )
        for descriptor, path in islice(files, _MAX_FILES):
            with contextlib.suppress(ProcError, ValueError, KeyError):
                lines = proc.text(f"{pid}/fdinfo/{descriptor}").splitlines()
                about = dict(line.split(":", 1) for line in lines if ":" in line)
                flags = int(about["flags"], 8)
                writes = flags & os.O_ACCMODE != os.O_RDONLY
                positions[descriptor, path] = Position(int(about["pos"]), writes, bool(flags & os.O_APPEND))
    return positions


def find_progress(before: Positions, after: Positions) -> Iterable[FileProgress]:
    """The files in which a process got on between two readings. Neither what it reads of a file that it writes, which may be its
    own log, nor what it appends."""
    written = {path for (_, path), position in after.items() if position.writes}
    for (descriptor, path), position in after.items():
        first = before.get((descriptor, path))
        own = position.appends or (not position.writes and path in written)
        if first is not None and position.bytes > first.bytes and not own:
            yield FileProgress(path=path, bytes=position.bytes - first.bytes, writes=position.writes)
