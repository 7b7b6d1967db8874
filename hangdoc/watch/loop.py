"""Looks again and again, as often as is cheap, and says what each look changed."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Diagnosis
from hangdoc.snapshot import Snapshot
from hangdoc.watch.confirm import Confirmation, News
from hangdoc.watch.hangs import Hang

_MOST_OF_A_CORE = 0.05
_SOON_SECONDS = 2.0


class Seen(NamedTuple):
    """One look."""

    snapshot: Snapshot
    diagnosis: Diagnosis
    news: News
    seconds: float
    hangs: tuple[Hang, ...] = ()
    """All that are not over, those that are not sure yet included."""


class Watch(NamedTuple):
    """How to look. `look`, `diagnose` and `pause` (seconds; may return early) are the caller's; `spent` returns the CPU seconds
    that looking has cost so far. `interval` in seconds, more where looking would take more than 5 % of a core; `patience` in
    seconds is how long a hang must last."""

    look: Callable[[], Snapshot]
    diagnose: Callable[[Snapshot], Diagnosis]
    spent: Callable[[], float]
    interval: float
    patience: float
    pause: Callable[[float], None] = time.sleep
    hangs: tuple[Hang, ...] = ()
    """Those known from before a restart."""

    def looks(self) -> Iterator[Seen]:
        """One look after another, for ever."""
        confirmation = Confirmation(self.patience, self.hangs)
        first = True
        while True:
            began, used = time.monotonic(), self.spent()
            snapshot = self.look()
            diagnosis = self.diagnose(snapshot)
            hosts = {host.name for host in snapshot.hosts}
            news = confirmation.add(diagnosis, time.monotonic(), hosts)
            yield Seen(snapshot, diagnosis, news, time.monotonic() - began, confirmation.hangs)
            cheap = 0.0 if first else (self.spent() - used) / _MOST_OF_A_CORE
            first = False  # which also loads what it needs
            wanted = min(self.interval, _SOON_SECONDS) if news.soon else max(self.interval, cheap)
            self.pause(max(0.0, began + wanted - time.monotonic()))
