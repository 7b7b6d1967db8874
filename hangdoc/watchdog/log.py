"""What the watchdog says, on the trainer's stderr."""

import contextlib
import sys


class Log:
    """Speaks for a rank; the same problem is reported once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._said: set[str] = set()

    def __call__(self, text: str, *, always: bool = False) -> None:
        """Never raises."""
        if always or text not in self._said:
            self._said.add(text)
            with contextlib.suppress(Exception):
                sys.stderr.write("".join(f"hangdoc[rank {self._rank}] {line}\n" for line in text.splitlines()))
                sys.stderr.flush()
