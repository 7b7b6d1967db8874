"""What a watch must not forget: hangs that are not over, messages that are not delivered, and what was counted. In a file, a
watch that is started again, even after `kill -9`, loses nothing and repeats nothing."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.version import __version__
from hangdoc.watch.hangs import Hang

SCHEMA = "hangdoc.watch-state/1"


class StateError(Exception):
    """A state file that can't be used; the message is for a person."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One message that is to be delivered."""

    delivery: str
    """The same at each attempt, also after a restart: receivers tell repetitions by it."""
    about: str
    """What it is, in few words."""
    body: str
    attempts: int = 0


class Counts(msgspec.Struct, kw_only=True):
    """Since the state file was made; without one, since the start."""

    looks: int = 0
    hangs: int = 0
    resolved: int = 0
    delivered: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages by their target: `webhook` or `on-hang`."""
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages that their target refused."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages for which the queue had no room."""
    retries: dict[str, int] = msgspec.field(default_factory=dict)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    hangs: tuple[Hang, ...]
    """`since` in Unix seconds."""
    letters: dict[str, tuple[Letter, ...]]
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
    """The state in memory, and in a file where a path is given. Only one watch can have a file. `hangs` are in seconds of
    `time.monotonic`. Raises StateError."""

    def __init__(self, path: Path | None, say: Callable[[str], None]) -> None:
        self.lock = threading.RLock()
        self.hangs: tuple[Hang, ...] = ()
        self.letters: dict[str, tuple[Letter, ...]] = {}
        self.counts = Counts()
        self._path, self._say = path, say
        self._unwritable: str | None = None
        if path is not None:
            self._held = _only_one(path)
            self._load(path)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """What changes within is written at once, whole or not at all."""
        with self.lock:
            yield
            self._save()

    def _load(self, path: Path) -> None:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            self._save()
            if self._unwritable is not None:
                raise StateError(f"--state: {self._unwritable}") from None
            return
        except OSError as error:
            raise StateError(f"--state: cannot read {path}: {error.strerror}.") from None
        state = _decoded(raw, path)
        self.hangs = _shifted(state.hangs, time.monotonic() - time.time())
        self.letters, self.counts = dict(state.letters), state.counts

    def _save(self) -> None:
        if self._path is None:
            return
        hangs = _shifted(self.hangs, time.time() - time.monotonic())
        content = State(hangs=hangs, letters=self.letters, counts=self.counts, saved_at=round(time.time(), 3))
        raw = msgspec.json.encode(content)
        try:
            codec.write_aside(self._path, raw)
        except codec.BundleError as error:
            if str(error) != self._unwritable:
                self._say(f"{error} A restart would forget what has happened since.")
            self._unwritable = str(error)
        else:
            self._unwritable = None


def _only_one(path: Path) -> int:
    """Hold the file's lock for as long as this process lives; the descriptor."""
    try:
        held = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"--state: cannot write {path}.lock: {error.strerror}. Choose another place.") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StateError(
            f"--state: another hangdoc watch uses {path}. Stop it, or give this one a file of its own."
        ) from None
    return held


def _decoded(raw: bytes, path: Path) -> State:
    try:
        header = msgspec.json.decode(raw, type=_Header)
        if header.schema == SCHEMA:
            return msgspec.json.decode(raw, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"--state: {path} is no state file of hangdoc watch ({error}). Name another file, or move this one away: "
            "hangs that it knows will then be reported again."
        ) from None
    raise StateError(
        f"--state: {path} has the schema {header.schema[:40]!r} of hangdoc {header.hangdoc[:20]}, and this one reads {SCHEMA}. "
        "Name another file, or move this one away: hangs that it knows will then be reported again."
    )


def _shifted(hangs: tuple[Hang, ...], seconds: float) -> tuple[Hang, ...]:
    """With their beginnings on another clock."""
    return tuple(msgspec.structs.replace(hang, since=round(hang.since + seconds, 3)) for hang in hangs)
