"""Shared by the callbacks of frameworks: a watchdog from the start of a training to its end."""

from typing import Any

from hangdoc.watchdog.watchdog import Watchdog


class Companion:
    """Holds the watchdog of one training at a time. `options` are those of Watchdog."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._watchdog: Watchdog | None = None

    def begin(self, rank: int, world_size: int) -> None:
        """Start watching, once."""
        if self._watchdog is None:
            self._watchdog = Watchdog(**{"rank": rank, "world_size": world_size, **self._options}).start()

    def beat(self, *step: int, **progress: Any) -> None:
        """Send a beat, if a training is running."""
        if self._watchdog is not None:
            self._watchdog.beat(*step, **progress)

    def end(self) -> None:
        """Stop watching."""
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
