"""Delivers messages in a separate thread, so that looks never wait for a receiver."""

import random
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from hangdoc.watch.state import Ledger, Message

MOST = 64
"""Messages in the queue at most. If one more is added, the oldest is dropped."""
_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0


class Refused(Exception):
    """The receiver refused the message for good. The text is shown to the user."""


class Unreachable(Exception):
    """The receiver may accept the message later. `after`: the seconds that it asked to wait."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class MessageQueue:
    """The queue of one target. Messages are delivered in order, and retried after 1, 2, 4, ... 60 seconds if the receiver can't
    be reached. A delivered message leaves the ledger at once. `deliver` raises Refused or Unreachable."""

    def __init__(
        self, target: str, ledger: Ledger, deliver: Callable[[Message], None], log: Callable[[str], None],
        first_seconds: float = _FIRST_SECONDS,
    ) -> None:  # fmt: skip
        self.target = target
        self._ledger, self._deliver, self._log = ledger, deliver, log
        self._first_seconds = first_seconds
        self._woken = threading.Condition(ledger.lock)
        self._closing = False
        with ledger.lock:
            ledger.queues.setdefault(target, ())
        self._thread = threading.Thread(target=self._work, name=f"messages-{target}", daemon=True)
        self._thread.start()

    def pending(self) -> int:
        """Number of messages that are not delivered yet."""
        return len(self._ledger.queues[self.target])

    def add(self, message: Message) -> None:
        """Queue a message, without waiting for the receiver. Call it within `Ledger.changing`, together with all changes that
        must be saved with it."""
        waiting = (*self._ledger.queues[self.target], message)
        if len(waiting) > MOST:
            self._count(self._ledger.counts.dropped)
            self._log(
                f"--{self.target}: dropped {waiting[0].about}: the queue is full ({MOST} messages), and the receiver accepts none"
            )
            waiting = waiting[1:]
        self._ledger.queues[self.target] = waiting
        self._woken.notify_all()

    def finish(self, seconds: float) -> bool:
        """Wait until all messages are delivered, at most `seconds`. Returns whether they are."""
        until = time.monotonic() + seconds
        with self._woken:
            while self.pending() and (left := until - time.monotonic()) > 0:
                self._woken.wait(left)
            return not self.pending()

    def close(self) -> None:
        """End the thread after its current delivery."""
        with self._woken:
            self._closing = True
            self._woken.notify_all()

    def _work(self) -> None:
        while (message := self._next()) is not None:
            pause = self._attempt(message)
            with self._woken:
                until = time.monotonic() + pause
                while not self._closing and (left := until - time.monotonic()) > 0:
                    self._woken.wait(left)

    def _next(self) -> Message | None:
        with self._woken:
            while not self._closing and not self.pending():
                self._woken.wait()
            return None if self._closing else self._ledger.queues[self.target][0]

    def _attempt(self, message: Message) -> float:
        """Try to deliver once. Returns the seconds until the next attempt."""
        counts = self._ledger.counts
        try:
            self._deliver(message)
        except Unreachable as error:
            if message.attempts == 0:  # once per message, not per attempt
                self._log(f"{error}; hangdoc will retry {message.about}")
            with self._ledger.changing():
                self._count(counts.retries)
                self._replace(message, replace(message, attempts=message.attempts + 1))
            wait = min(_LONGEST_SECONDS, self._first_seconds * float(1 << min(message.attempts, 16)))
            wait *= random.uniform(0.75, 1.0)  # noqa: S311  (many watches, one receiver)
            return max(wait, min(error.after or 0.0, 10 * _LONGEST_SECONDS))
        except Exception as error:  # Refused, or a bug of ours: a retry would fail too
            with self._ledger.changing():
                self._count(counts.failed)
                self._replace(message, None)
            self._log(str(error) if isinstance(error, Refused) else f"--{self.target}: {type(error).__name__}: {error}")
        else:
            with self._ledger.changing():
                self._count(counts.delivered)
                self._replace(message, None)
            if message.attempts:
                self._log(f"--{self.target}: delivered {message.about} after {message.attempts + 1} attempts")
        return 0.0

    def _replace(self, message: Message, by: Message | None) -> None:
        """Replace a message, or remove it. It may have been dropped in the meantime."""
        waiting = self._ledger.queues[self.target]
        kept = (by if queued.delivery == message.delivery else queued for queued in waiting)
        self._ledger.queues[self.target] = tuple(queued for queued in kept if queued is not None)
        self._woken.notify_all()

    def _count(self, counts: dict[str, int]) -> None:
        counts[self.target] = counts.get(self.target, 0) + 1
