"""Takes one look after another within a CPU budget, and reports what each look changed."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Diagnosis
from hangdoc.snapshot import Snapshot
from hangdoc.watch.confirm import Changes, Confirmation
from hangdoc.watch.hangs import Hang, observed_in

_MOST_OF_A_CORE = 0.05
_SOON_SECONDS = 2.0
_COSTS = 5
"""The cost of a look is the median of this many: a single look may be expensive because a freezing run has every rank read."""


class Seen(NamedTuple):
    """One look."""

    snapshot: Snapshot
    diagnosis: Diagnosis
    changes: Changes
    seconds: float
    hangs: tuple[Hang, ...] = ()
    """All hangs that are not over, also those that are not confirmed yet."""


class Watch(NamedTuple):
    """How to look. The caller provides `look`, `diagnose` and `pause` (seconds; may return early). `spent` returns the CPU
    seconds that looks have used so far. `interval` in seconds is longer if looks would use more than 5 % of a core. `patience`
    in seconds is how long a hang must last."""

    look: Callable[[], Snapshot]
    diagnose: Callable[[Snapshot], Diagnosis]
    spent: Callable[[], float]
    interval: float
    patience: float
    pause: Callable[[float], None] = time.sleep
    hangs: tuple[Hang, ...] = ()
    """Hangs known from before a restart."""

    def looks(self) -> Iterator[Seen]:
        """One look after another, forever."""
        confirmation = Confirmation(self.patience, self.hangs)
        costs: deque[float] = deque(maxlen=_COSTS)
        first = True
        while True:
            began, used = time.monotonic(), self.spent()
            snapshot = self.look()
            diagnosis = self.diagnose(snapshot)
            changes = confirmation.add(diagnosis, time.monotonic(), observed_in(snapshot, began))
            yield Seen(snapshot, diagnosis, changes, time.monotonic() - began, confirmation.hangs)
            if not first:  # the first one also imports modules
                costs.append(self.spent() - used)
            first = False
            cheap = statistics.median(costs) / _MOST_OF_A_CORE if costs else 0.0
            wanted = min(self.interval, _SOON_SECONDS) if changes.soon else max(self.interval, cheap)
            self.pause(max(0.0, began + wanted - time.monotonic()))
