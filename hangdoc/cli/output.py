"""Standard output and standard error of a command, also where they are closed, full, a pipe that nobody reads, or ASCII only.

A reader that leaves (`| head -1`) has read enough: the rest is dropped, and the command ends with its own exit code. Any other
failure of standard output loses what was asked for: OutputLost, once. A failure of standard error is no reason to end.
"""

import errno
import io
import os
import select
import sys
from typing import Any

LOST = 2
"""The exit code if the output could not be written."""


class OutputLost(Exception):
    """Standard output could not be written. The message is one sentence."""


class _Stream(io.FileIO):
    """A standard stream that drops what cannot be written. `loses`: the first time, it raises OutputLost unless its reader has
    left."""

    def __init__(self, number: int, *, loses: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._loses = loses

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # a pipe that another program has made non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            loses, self._loses = self._loses, False
            if loses:
                raise_lost(error)
            return len(data)


def raise_lost(error: OSError) -> None:
    """Raise OutputLost for an error in writing to standard output, unless its reader has left."""
    if error.errno != errno.EPIPE:
        why = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise OutputLost(f"standard output cannot be written: {why}.") from None


def prepare() -> None:
    """Replace the standard streams of this process. Call it before anything opens a file."""
    # A closed standard stream would become the number of the next file that is opened. The gnulib library does the same: what is
    # opened in its place cannot be used either.
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # the lowest free number
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout = _text(sys.stdout, 1, loses=True, errors="replace")
    sys.stderr = _text(sys.stderr, 2, loses=False, errors="backslashreplace")


def _text(replaced: io.TextIOWrapper | Any, number: int, *, loses: bool, errors: str) -> io.TextIOWrapper:
    encoding = getattr(replaced, "encoding", None)
    raw = _Stream(number, loses=loses)
    buffered = number == 1 and not raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding or "utf-8", errors=errors, line_buffering=not buffered
    )


def show(text: str) -> None:
    """Print lines on standard output. Raises OutputLost."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print lines on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
