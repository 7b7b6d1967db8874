"""The watchdog's messages on the trainer's stderr."""

import contextlib
import sys


class Log:
    """Prints messages of one rank. The same message is printed once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._printed: set[str] = set()

    def __call__(self, text: str, *, always: bool = False) -> None:
        """Print the text, unless it was printed before; `always` prints it again. Never raises."""
        if always or text not in self._printed:
            self._printed.add(text)
            with contextlib.suppress(Exception):
                sys.stderr.write("".join(f"hangdoc[rank {self._rank}] {line}\n" for line in text.splitlines()))
                sys.stderr.flush()
