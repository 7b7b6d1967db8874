"""What all ranks of a run can read and write, wherever they are: the store that the run itself met in.

A client of its own, asked by a thread of its own: a store that does not answer holds up neither the watchdog nor the
training, and from then on it is not asked again.
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
    """The run's notice run_store. No method raises; None is "nobody answered"."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since = time.time()
        self._store: Any = None
        self._listening = False
        self._asked = 0.0
        self._calls = 0
        self._heard: str | None = None
        self._dead = False
        self.reason = "the run has no store yet"
        """Why nobody answers, where nobody does."""

    def listen(self, urgent: bool) -> None:
        """Ask, without waiting for the answer, whether somebody has called: now, or every few seconds where all is well."""
        now = time.monotonic()
        if not (self._dead or self._listening) and (urgent or now - self._asked > _IDLE_SECONDS):
            self._asked, self._listening = now, True
            self._submit(self._listen)

    @property
    def silent(self) -> bool:
        """Whether nobody answers any more, or yet."""
        return self._dead or self._store is None

    def heard(self) -> str | None:
        """The name of the last hang that was called out."""
        return self._heard

    def agree(self, name: str) -> str:
        """Call a hang out by this name; the name that holds, which is another where another rank was first."""
        return self._ask(lambda: self._call(name)) or name

    def first(self, key: str, who: str) -> bool | None:
        """Whether `who` is the first to claim a key."""
        return self._ask(lambda: self._claim(key, who))

    def put(self, key: str, content: bytes) -> bool:
        """Whether all can read it now; what is too large is not put."""
        return len(content) <= _MAX_BYTES and bool(self._ask(lambda: self._put(key, content)))

    def get(self, key: str) -> bytes | None:
        """What lies at a key now."""
        return self._ask(lambda: self._get(key))

    def count(self, key: str, more: int) -> int | None:
        """A counter that all ranks share, after adding to it."""
        return self._ask(lambda: int(self._need().add(_key(key), more)))

    def promise(self, rank: int, seconds: float) -> None:
        """Say, without waiting, that a rank may be silent for so long: ranks that wait for it are to wait too. 0 takes it
        back."""
        until = str(time.time() + seconds if seconds else 0.0).encode()
        if not self._dead:
            self._submit(lambda: self._put(f"patience/{rank}", until))

    def promised(self, ranks: Iterable[int]) -> bool:
        """Whether one of these ranks has asked for time that has not run out."""
        return bool(self._ask(lambda: any(self._until(rank) > time.time() for rank in ranks)))

    # --- in the run_store's own thread -------------------------------------------------------------------------------------

    def _need(self) -> Any:
        """The store's client; raises LookupError where there is none."""
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
            while (raw := self._get(f"call/{self._calls}")) is not None:
                self._note(raw)
        finally:
            self._listening = False

    def _note(self, raw: bytes) -> str | None:
        """The name that a call carries, where it is news."""
        import json

        self._calls += 1
        with contextlib.suppress(ValueError, KeyError, TypeError):
            call = json.loads(raw)
            if call["at"] >= self._since and time.time() - call["at"] < _FRESH_SECONDS:
                self._heard = str(call["name"])
                return self._heard
        return None

    def _call(self, name: str) -> str:
        import json

        while True:
            mine = json.dumps({"name": name, "at": time.time()})
            holds = self._need().compare_set(_key(f"call/{self._calls}"), "", mine)
            known = self._note(holds)
            if known is not None:
                return known

    def _claim(self, key: str, who: str) -> bool:
        return bool(self._need().compare_set(_key(key), "", who) == who.encode())

    def _put(self, key: str, content: bytes) -> bool:
        self._need().set(_key(key), content)
        return True

    def _get(self, key: str) -> bytes | None:
        store = self._need()
        return bytes(store.get(_key(key))) if store.check([_key(key)]) else None

    def _until(self, rank: int) -> float:
        return float(self._get(f"patience/{rank}") or 0.0)

    # --- between the two -----------------------------------------------------------------------------------------------

    def _submit(self, job: Callable[[], T]) -> "queue.SimpleQueue[T | None]":
        """Have a job done in the run_store's thread; its answer comes through the queue."""
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
            except Exception as error:  # whatever torch raises: it is not asked again
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
            self.reason = f"the run's store has not answered for {_ANSWER_SECONDS:.0f} s"
            return None


def _key(name: str) -> str:
    return f"hangdoc/{name}"
