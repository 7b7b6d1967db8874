"""What a watch must remember: hangs that are not over, messages that are not delivered, and counts. With a state file, a watch
that is restarted, even after `kill -9`, loses nothing and repeats nothing."""

import contextlib
import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from hangdoc import file_writer, untrusted
from hangdoc.version import __version__
from hangdoc.watch.hangs import Hang

SCHEMA = "hangdoc.watch-state/2"
_MAX_BYTES = 256 << 20
"""Limit for the state file: 64 messages for each target, and each has its report."""


class StateError(Exception):
    """The state file can't be used. The message is shown to the user."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to deliver."""

    delivery: str
    """The same at each attempt, also after a restart, so that receivers recognise repetitions."""
    about: str
    """What it is about, in a few words."""
    body: str
    attempts: int = 0


class Counts(msgspec.Struct, kw_only=True):
    """Counts since the state file was created; without one, since the start."""

    looks: int = 0
    hangs: int = 0
    resolved: int = 0
    delivered: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages by their target: `webhook` or `on-hang`."""
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages that their target refused."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages that were dropped because the queue was full."""
    retries: dict[str, int] = msgspec.field(default_factory=dict)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state file."""

    hangs: tuple[Hang, ...]
    """`since` and `seen` in Unix seconds."""
    queues: dict[str, tuple[Message, ...]]
    """By target, the oldest first."""
    counts: Counts
    saved_at: float
    """Unix seconds."""
    hangdoc: str = __version__
    schema: str = SCHEMA


class _Header(msgspec.Struct):
    schema: str = ""
    hangdoc: str = "?"


class Ledger:
    """The state in memory, and in a file if there is a path. Only one watch can use a file. `hangs` are in seconds of
    `time.monotonic`. Raises StateError."""

    def __init__(self, path: Path | None, log: Callable[[str], None]) -> None:
        self.lock = threading.RLock()
        self.hangs: tuple[Hang, ...] = ()
        self.queues: dict[str, tuple[Message, ...]] = {}
        self.counts = Counts()
        self._path, self._log = path, log
        self._unwritable: str | None = None
        if path is not None:
            self._held = _only_one(path)
            self._load(path)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Changes inside this context are written together, completely or not at all."""
        with self.lock:
            yield
            self._save()

    def _load(self, path: Path) -> None:
        try:
            raw = untrusted.read_file(path, _MAX_BYTES)
        except FileNotFoundError:
            self._save()
            if self._unwritable is not None:
                raise StateError(f"--state: {self._unwritable}") from None
            return
        except OSError as error:
            raise StateError(f"--state: cannot read {path}: {error.strerror}.") from None
        except untrusted.UntrustedError as error:
            raise StateError(f"--state: {path} {error}. Choose another file.") from None
        state = _decode(raw, path)
        self.hangs = _shift(state.hangs, time.monotonic() - time.time())
        self.queues, self.counts = dict(state.queues), state.counts

    def _save(self) -> None:
        if self._path is None:
            return
        hangs = _shift(self.hangs, time.time() - time.monotonic())
        content = State(hangs=hangs, queues=self.queues, counts=self.counts, saved_at=round(time.time(), 3))
        raw = msgspec.json.encode(content)
        try:
            file_writer.write_file(self._path, raw)
        except file_writer.WriteError as error:
            if str(error) != self._unwritable:
                self._log(f"{error} After a restart, hangdoc would not remember what happened since then.")
            self._unwritable = str(error)
        else:
            self._unwritable = None


def _only_one(path: Path) -> int:
    """Take the file's lock until this process ends. Returns the file descriptor."""
    try:
        held = file_writer.open_lock(f"{path}.lock")
    except file_writer.WriteError as error:
        raise StateError(f"--state: {error}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StateError(
            f"--state: another hangdoc watch uses {path}. Stop that one, or choose another file."
        ) from None
    return held


def _decode(raw: bytes, path: Path) -> State:
    try:
        header = untrusted.decode(raw, _Header, _MAX_BYTES)
        if header.schema == SCHEMA:
            return untrusted.decode(raw, State, _MAX_BYTES)
    except untrusted.UntrustedError as error:
        raise StateError(
            f"--state: {path} is not a state file of hangdoc watch (it {error}). Choose another file, or move this one "
            "away. Hangs that it contains will then be reported again."
        ) from None
    raise StateError(
        f"--state: {path} has schema {header.schema[:40]!r} of hangdoc {header.hangdoc[:20]}, but this hangdoc reads {SCHEMA}. "
        "Choose another file, or move this one away. Hangs that it contains will then be reported again."
    )


def _shift(hangs: tuple[Hang, ...], seconds: float) -> tuple[Hang, ...]:
    """The hangs with `since` and `seen` converted to another clock."""
    return tuple(
        msgspec.structs.replace(
            hang,
            since=round(hang.since + seconds, 3),
            seen=round(hang.seen + seconds, 3) if hang.seen is not None else None,
        )
        for hang in hangs
    )
