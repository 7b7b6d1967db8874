"""What the callbacks of frameworks share: a watchdog that lives from the beginning of a training to its end."""

from typing import Any

from hangdoc.watchdog.watchdog import Watchdog


class Companion:
    """Holds the watchdog of one training at a time; `options` are Watchdog's."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._dog: Watchdog | None = None

    def begin(self, rank: int, world_size: int) -> None:
        """Start to watch, once."""
        if self._dog is None:
            self._dog = Watchdog(**{"rank": rank, "world_size": world_size, **self._options}).start()

    def beat(self, *step: int, **what: Any) -> None:
        """A beat, where a training is under way."""
        if self._dog is not None:
            self._dog.beat(*step, **what)

    def end(self) -> None:
        """Stop watching."""
        if self._dog is not None:
            self._dog.stop()
            self._dog = None
