"""Threads for actions that may never return: a read from a dead mount, or of a process that the kernel holds up.

No thread can be ended from outside. So the caller stops waiting for it, and the thread stays behind as a daemon, which does
not keep hangdoc from ending. One that comes back is used again.
"""

import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class NotEnded(Exception):
    """The action has not ended in time. Its thread was abandoned."""


class TooMany(Exception):
    """As many threads as a key may have are at work or abandoned."""


class Threads(Generic[K]):
    """Threads by a key, such as the user for whom they work. Each is prepared once by `prepare`, and then keeps its key."""

    def __init__(self, name: str, most: int, prepare: Callable[[K], None] = lambda key: None) -> None:
        self._name, self._most, self._prepare = name, most, prepare
        self._lock = threading.Lock()
        self._idle: dict[K, list[_Thread]] = {}
        self._count: dict[K, int] = {}
        self._ended = False

    def begin(self, key: K, action: Callable[[], T]) -> "Future[T]":
        """Start an action in a thread. Its future raises what `prepare` or the action raises. Raises TooMany."""
        return self._take(key).submit(action)

    def run(self, key: K, action: Callable[[], T], seconds: float) -> T:
        """The result of an action. Raises what `prepare` or the action raises, TooMany, and NotEnded after `seconds`."""
        job = self.begin(key, action)
        try:
            return job.result(max(0.0, seconds))
        except FutureTimeout:
            if job.done():  # the action itself raised it
                raise
            raise NotEnded from None

    def end(self) -> None:
        """End the threads that are idle, and each other one when it comes back. To be called after the last action."""
        with self._lock:
            self._ended = True
            idle = [thread for threads in self._idle.values() for thread in threads]
            self._idle.clear()
        for thread in idle:
            thread.end()

    def _take(self, key: K) -> "_Thread":
        with self._lock:
            if idle := self._idle.get(key):
                return idle.pop()
            if self._count.get(key, 0) >= self._most:
                raise TooMany
            self._count[key] = self._count.get(key, 0) + 1
        return _Thread(self._name, lambda: self._prepare(key), lambda thread: self._give_back(key, thread))

    def _give_back(self, key: K, thread: "_Thread") -> None:
        with self._lock:
            if not self._ended:
                self._idle.setdefault(key, []).append(thread)
                return
        thread.end()


class _Thread:
    """One thread, with the actions that it still has to do."""

    def __init__(self, name: str, prepare: Callable[[], None], idle: Callable[["_Thread"], None]) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = queue.SimpleQueue()
        self._prepare, self._idle = prepare, idle
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, action: Callable[[], T]) -> "Future[T]":
        job: Future[T] = Future()
        self._jobs.put((job, action))  # type: ignore[arg-type]  # the result of each job has its own type
        return job

    def end(self) -> None:
        """End the thread after the actions that it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        problem: BaseException | None = None
        try:
            self._prepare()
        except Exception as error:
            problem = error
        while (work := self._jobs.get()) is not None:
            job, action = work
            result, raised = None, problem
            if problem is None:
                try:
                    result = action()
                except BaseException as error:
                    raised = error
            self._idle(self)  # before the result is there: the caller may begin the next action at once
            if raised is None:
                job.set_result(result)
            else:
                job.set_exception(raised)
            del work, job, action, result, raised
