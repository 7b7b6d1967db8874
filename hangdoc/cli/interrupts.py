"""Ctrl-C and SIGTERM: they end a command without a traceback, at any time.

It imports almost nothing, because until it is loaded, Ctrl-C shows Python's traceback.
"""

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

INTERRUPTED = 130
_REPEATED_SECONDS = 1.0
"""A script or a terminal that closes may send a signal several times. A person who presses Ctrl-C again after this time does not
want to wait for the cleanup."""


class _Ending:
    """The handler of both signals. The first one raises KeyboardInterrupt or SystemExit, so that the command cleans up."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, number: int, _frame: "FrameType | None") -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            sys.exit(128 + number)
        if now - self._first > _REPEATED_SECONDS:
            _end_now(number, None)


def end_at_once() -> None:
    """From now on, the signals end this process without cleanup: during imports, and while the output is flushed."""
    _handle(_end_now)


def end_with_cleanup() -> None:
    """From now on, the first of the signals raises KeyboardInterrupt or SystemExit."""
    _handle(_Ending())
    sys.unraisablehook = _end_if_swallowed


def _end_now(number: int, _frame: "FrameType | None") -> None:
    os._exit(128 + number)  # the kernel ends the py-spy children (hangdoc.observe.access.bounded_child)


def _handle(handler: "Callable[[int, FrameType | None], None]") -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell ignores SIGINT for a job in the background
            signal.signal(number, handler)


def _end_if_swallowed(unraisable: "Any") -> None:
    """Python drops an exception that is raised in a destructor. For these two, the command would continue."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end_now(signal.SIGINT, None)
    if issubclass(unraisable.exc_type, SystemExit):
        _end_now(signal.SIGTERM, None)
    sys.__unraisablehook__(unraisable)
