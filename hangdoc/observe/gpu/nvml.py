"""A child process that asks NVML (`nvml_child`), and what it has answered so far.

A question may never be answered: a driver or a card in trouble keeps the child in the kernel, where nothing can end it. So
nothing here waits longer than the caller allows, and as long as a question is open no other one is asked.
"""

import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from hangdoc import untrusted
from hangdoc.observe.access.bounded_child import BoundedChild
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.gpu.nvml_child import END, MOST_CARDS, READY
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Card

ANSWER_SECONDS = 5.0
"""A driver that has not answered by then is in trouble. It takes 5 ms to load, and 0.1 ms for each card."""
_MEMORY_BYTES = 1 << 30
_MAX_LINE = 16 << 10
_CHUNK, _MOST_BYTES = 1 << 16, 1 << 18
"""At once, and in one reading. An answer about 8 cards has 10 KiB."""
_BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from hangdoc.observe.gpu import nvml_child; "
    "nvml_child.main(sys.argv[2], int(sys.argv[3]), sys.argv[4] == 'keep')"
)
_IN_KERNEL = frozenset("DS")
_BUSY_SHARE = 0.5
_HERE = ProcFS()


class NotStarted(Exception):
    """The child can't be started. The text is one clause for the report."""


class _Line(msgspec.Struct):
    """One line of the child."""

    stage: str | None = None
    driver: str | None = None
    card: Card | None = None
    failed: str | None = None


class Answer(NamedTuple):
    """What the child has answered to one question."""

    cards: tuple[Card, ...]
    driver: str | None
    failed: str | None
    """Why NVML has no cards, in its own words."""
    at: float
    """When the answer was complete (monotonic)."""


class NvmlChild:
    """The child, from its start to `close`. Raises NotStarted."""

    def __init__(self, directories: tuple[str, ...] | None = None, *, keep_user: bool = False) -> None:
        """`directories` are searched for the driver's library before the usual places; by default those of LD_LIBRARY_PATH that
        are trusted. `keep_user`: as root, it keeps root's uid, without any capability."""
        spec = importlib.util.find_spec("pynvml")
        if spec is None or spec.origin is None:
            raise NotStarted("nvidia-ml-py is not installed: pip install 'hangdoc[gpu]'")
        ours = os.path.dirname(os.path.dirname(untrusted.__file__))  # also in a zip file
        theirs, self._questions = os.pipe()
        searched = library_directories(os.environ) if directories is None else directories
        command = [sys.executable, "-I", "-c", _BEGIN, ours, os.path.dirname(spec.origin), str(theirs)]
        try:
            self._child = BoundedChild(
                [*command, "keep" if keep_user else "lower"],
                memory_bytes=_MEMORY_BYTES,
                inherited=(theirs,),
                env={"LD_LIBRARY_PATH": ":".join(searched)} if searched else {},
                cwd="/",
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._questions)
            raise NotStarted(f"the child that asks NVML can't be started: {error}") from error
        finally:
            os.close(theirs)
        self.answer: Answer | None = None
        """The last complete one."""
        self.stage: str | None = None
        """What the child has done last; None while it starts."""
        self.part: dict[int, Card] = {}
        """Cards in an answer that is not complete."""
        self.asked_at: float | None = None
        """Since when the driver has been at work on the open question (monotonic); None without one."""
        self._waits_to_ask = False
        self.driver: str | None = None
        """The version of the driver."""
        self._failed: str | None = None
        self._rest = b""
        self._ready = select.poll()
        self._ready.register(self._child.output, select.POLLIN)

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._child.pid

    def ask(self) -> None:
        """Ask about all cards, unless a question is open."""
        if self.asked_at is not None or self._waits_to_ask:
            return
        if self.stage is None:  # the start of Python is not the driver's fault
            self._waits_to_ask = True
            return
        self.part, self._failed = {}, None
        self.asked_at = time.monotonic()
        try:
            os.write(self._questions, b"?")
        except OSError:  # it has ended
            self.asked_at = None

    def read(self, until: float = 0.0) -> None:
        """Take in what it has written; with an open question, wait for the end of the answer until `until` (monotonic)."""
        left = _MOST_BYTES
        while left > 0:
            seconds = max(0.0, until - time.monotonic()) if self.is_asked() else 0.0
            if not self._ready.poll(seconds * 1000):
                return
            chunk = os.read(self._child.output, _CHUNK)
            if not chunk:
                return
            left -= len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > _MAX_LINE:
                self._rest = b""
            for line in lines:
                self._take(line)

    def is_asked(self) -> bool:
        """Whether a question is open."""
        return self.asked_at is not None or self._waits_to_ask

    def ended(self) -> str | None:
        """How the child has ended, as a clause; None while it runs."""
        code = self._child.ended()
        if code is None:
            return None
        if code >= 0:
            return f"the child that asks NVML ended with exit code {code}"
        return f"NVML crashed ({signal.strsignal(-code) or -code}; asked for: {self.stage})"

    def is_held_by_driver(self) -> bool:
        """Whether the open question is one that the driver does not answer: the child is in the kernel or computes. It is not if
        somebody has stopped the child, or if it gets no processor."""
        if self.asked_at is None:
            return False
        try:
            stat = _HERE.stat(str(self.pid))
        except ProcError:
            return False
        used = stat.cpu_ticks / _HERE.ticks_per_second
        return stat.state in _IN_KERNEL or (
            stat.state == "R" and used >= _BUSY_SHARE * (time.monotonic() - self.asked_at)
        )

    def close(self) -> None:
        """End it. One that is blocked in the kernel is left behind."""
        os.close(self._questions)
        self._child.__exit__(None, None, None)

    def _take(self, raw: bytes) -> None:
        try:
            line = untrusted.decode(raw, _Line, _MAX_LINE)
        except untrusted.UntrustedError as error:
            self._failed = f"its answer {error}"
            return
        self.driver = line.driver or self.driver
        self._failed = line.failed or self._failed
        if line.card is not None and (line.card.index in self.part or len(self.part) < MOST_CARDS):
            self.part[line.card.index] = line.card
        if line.stage is not None:
            self.stage = line.stage
        if line.stage == READY and self._waits_to_ask:
            self._waits_to_ask = False
            self.ask()
        if line.stage == END:
            cards = tuple(self.part[index] for index in sorted(self.part))
            self.answer = Answer(cards, self.driver, self._failed, time.monotonic())
            self.asked_at = None


def library_directories(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The directories in LD_LIBRARY_PATH from which the driver's library may be loaded. As root, these are the ones that only
    root can have put anything into: the variable may be that of the user who has called sudo."""
    named = [path for path in variables.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    return tuple(path for path in named if os.geteuid() != 0 or _is_of_root(path))


def _is_of_root(path: str) -> bool:
    """Whether nobody but root can have put anything into a directory, nor exchange it or one above it."""
    try:
        with own_root().place(path) as place:
            real = _HERE.link(f"self/fd/{place}")
        parts = real.rstrip("/").split("/")
        above = ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]
        states = [own_root().stat(directory) for directory in above]
        last = own_root().stat(real)
    except (OSError, ProcError):
        return False
    sticky = 0o1000  # in such a directory nobody renames what belongs to others
    return (
        all(about.st_uid == 0 and (not about.st_mode & 0o022 or about.st_mode & sticky) for about in states)
        and last.st_uid == 0
        and not last.st_mode & 0o022
    )
