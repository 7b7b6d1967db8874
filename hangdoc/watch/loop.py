"""Looks again and again, as often as is cheap, and says what each look changed."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Diagnosis
from hangdoc.snapshot import Snapshot
from hangdoc.watch.confirm import Confirmation, News
from hangdoc.watch.hangs import Hang

_MOST_OF_A_CORE = 0.05
_SOON_SECONDS = 2.0
_COSTS = 5
"""The median of so many looks is what a look costs: one in which a run froze reads every rank."""


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
        """One look after another, forever."""
        confirmation = Confirmation(self.patience, self.hangs)
        costs: deque[float] = deque(maxlen=_COSTS)
        first = True
        while True:
            began, used = time.monotonic(), self.spent()
            snapshot = self.look()
            diagnosis = self.diagnose(snapshot)
            hosts = {host.name for host in snapshot.hosts}
            news = confirmation.add(diagnosis, time.monotonic(), hosts)
            yield Seen(snapshot, diagnosis, news, time.monotonic() - began, confirmation.hangs)
            if not first:  # which also loads what it needs
                costs.append(self.spent() - used)
            first = False
            cheap = statistics.median(costs) / _MOST_OF_A_CORE if costs else 0.0
            wanted = min(self.interval, _SOON_SECONDS) if news.soon else max(self.interval, cheap)
            self.pause(max(0.0, began + wanted - time.monotonic()))
