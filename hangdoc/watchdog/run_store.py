"""Messages between all ranks of a run, on any host, through the TCPStore of the run's own rendezvous.

It uses a separate client in a separate thread, so a store that does not answer blocks neither the watchdog nor the training.
After a failure it is not used again.
"""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_ANSWER_SECONDS = 3.0
_IDLE_SECONDS = 5.0
_FRESH_SECONDS = 120.0
_MAX_BYTES = 16 << 20
T = TypeVar("T")


class RunStore:
    """The watchdog's client of the run's store. No method raises; None means that the store did not answer."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since = time.time()
        self._store: Any = None
        self._listening = False
        self._asked = 0.0
        self._hangs = 0
        self._announced: str | None = None
        self._dead = False
        self.reason = "the run has no store yet"
        """Why the store does not answer, if it does not."""

    def listen(self, urgent: bool) -> None:
        """Check, without waiting for the answer, whether a rank has announced a hang: now if `urgent`, else every few seconds."""
        now = time.monotonic()
        if not (self._dead or self._listening) and (urgent or now - self._asked > _IDLE_SECONDS):
            self._asked, self._listening = now, True
            self._submit(self._listen)

    @property
    def silent(self) -> bool:
        """Whether the store has failed or does not exist yet."""
        return self._dead or self._store is None

    def announced(self) -> str | None:
        """The name of the last announced hang."""
        return self._announced

    def agree(self, name: str) -> str:
        """Announce a hang under this name. Returns the name that all ranks use: another one if another rank was first."""
        return self._ask(lambda: self._publish(name)) or name

    def first(self, key: str, who: str) -> bool | None:
        """Whether `who` is the first to claim a key."""
        return self._ask(lambda: self._claim(key, who))

    def put(self, key: str, content: bytes) -> bool:
        """Store it for all ranks. Returns whether that worked; content that is too large is not stored."""
        return len(content) <= _MAX_BYTES and bool(self._ask(lambda: self._put(key, content)))

    def get(self, key: str) -> bytes | None:
        """The current value of a key."""
        return self._ask(lambda: self._get(key))

    def count(self, key: str, more: int) -> int | None:
        """Add to a counter that all ranks share, and return its value."""
        return self._ask(lambda: int(self._get_client().add(_key(key), more)))

    def announce_silence(self, rank: int, seconds: float) -> None:
        """Announce, without waiting, that a rank may be silent for so long, so that the ranks that wait for it are silent too. 0
        revokes it."""
        until = str(time.time() + seconds if seconds else 0.0).encode()
        if not self._dead:
            self._submit(lambda: self._put(f"patience/{rank}", until))

    def silence_announced(self, ranks: Iterable[int]) -> bool:
        """Whether one of these ranks has announced silence that has not ended."""
        return bool(self._ask(lambda: any(self._until(rank) > time.time() for rank in ranks)))

    # --- in the thread of the store ----------------------------------------------------------------------------------------

    def _get_client(self) -> Any:
        """The store's client. Raises LookupError if there is no store."""
        if self._store is None:
            c10d = sys.modules.get("torch.distributed.distributed_c10d")
            if c10d is None or not c10d.is_initialized():
                raise LookupError("the run has no store yet")
            self._store = c10d._get_default_store().clone()
            import datetime

            self._store.set_timeout(datetime.timedelta(seconds=_ANSWER_SECONDS))
        return self._store

    def _listen(self) -> None:
        try:
            while (raw := self._get(f"hang/{self._hangs}")) is not None:
                self._note(raw)
        finally:
            self._listening = False

    def _note(self, raw: bytes) -> str | None:
        """The hang that a message announces, if it is new."""
        import json

        self._hangs += 1
        with contextlib.suppress(ValueError, KeyError, TypeError):
            hang = json.loads(raw)
            if hang["at"] >= self._since and time.time() - hang["at"] < _FRESH_SECONDS:
                self._announced = str(hang["name"])
                return self._announced
        return None

    def _publish(self, name: str) -> str:
        import json

        while True:
            mine = json.dumps({"name": name, "at": time.time()})
            winner = self._get_client().compare_set(_key(f"hang/{self._hangs}"), "", mine)
            announced = self._note(winner)
            if announced is not None:
                return announced

    def _claim(self, key: str, who: str) -> bool:
        return bool(self._get_client().compare_set(_key(key), "", who) == who.encode())

    def _put(self, key: str, content: bytes) -> bool:
        self._get_client().set(_key(key), content)
        return True

    def _get(self, key: str) -> bytes | None:
        store = self._get_client()
        return bytes(store.get(_key(key))) if store.check([_key(key)]) else None

    def _until(self, rank: int) -> float:
        return float(self._get(f"patience/{rank}") or 0.0)

    # --- between the threads--------------------------------------------------------------------------------------------

    def _submit(self, job: Callable[[], T]) -> "queue.SimpleQueue[T | None]":
        """Run a job in the store's thread. Its answer arrives in the queue."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="hangdoc-run-store", daemon=True)
            self._thread.start()
        answer: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._jobs.put((job, answer))
        return answer

    def _serve(self) -> None:
        while True:
            job, answer = self._jobs.get()
            try:
                answer.put(job())
            except LookupError as error:
                self.reason = str(error)
                answer.put(None)
            except Exception as error:  # torch may raise anything; the store is not used again
                self.reason = f"the run's store failed: {type(error).__name__}: {str(error)[:200]}"
                self._dead = True
                answer.put(None)

    def _ask(self, job: Callable[[], T]) -> T | None:
        if self._dead:
            return None
        try:
            return self._submit(job).get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            self._dead = True
            self.reason = f"the run's store did not answer within {_ANSWER_SECONDS:.0f} s"
            return None


def _key(name: str) -> str:
    return f"hangdoc/{name}"
