"""Measures `hangdoc top` over a slow line: a terminal with a delay in both directions, as over ssh."""

import asyncio
import fcntl
import os
import pty
import statistics
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from bench.table import HANGDOC

_SIZE = (120, 36)
_KEYS = ("4", "5", "2", "3", "6", "7", "8", "1", "]", "[", "?", "\x1b", "s", "g")
_BUNDLE = Path(__file__).parents[1] / "tests" / "corpus" / "trainer_shard_mismatch.hangdoc"
_QUIET = 0.1
"""A screen is complete after so many seconds without a byte."""


class Line:
    """A program in a terminal with a delay in both directions."""

    def __init__(self, command: list[str], delay: float) -> None:
        self._delay = delay
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _SIZE[1], _SIZE[0], 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.program = Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        os.close(slave)
        os.set_blocking(self._master, False)
        self.received: list[tuple[float, int]] = []
        """(time, number of bytes) of what has reached the user."""
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            size = len(os.read(self._master, 1 << 16))
        except OSError:  # it has ended
            asyncio.get_running_loop().remove_reader(self._master)
            return
        self._later(lambda: self.received.append((time.monotonic(), size)))

    def press(self, key: str) -> None:
        """Send a key."""
        self._later(lambda: os.write(self._master, key.encode()))

    def _later(self, what: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(self._delay, what)

    async def picture(self, since: float) -> tuple[float, int]:
        """(seconds from `since` to the last byte of the next screen, its size in bytes)."""
        while True:
            await asyncio.sleep(0.01)
            mine = [(at, size) for at, size in self.received if at > since]
            if mine and time.monotonic() - mine[-1][0] > _QUIET:
                return mine[-1][0] - since, sum(size for _, size in mine)


async def _measured(delay: float) -> None:
    line = Line([HANGDOC, "top", "--rate", "60", str(_BUNDLE)], delay)
    try:
        await line.picture(time.monotonic())
        await asyncio.sleep(2.0)  # until it has drawn its first screen
        waits, sizes = [], []
        for _ in range(3):
            for key in _KEYS:
                pressed = time.monotonic()
                line.press(key)
                wait, size = await line.picture(pressed)
                waits.append(wait * 1000)
                sizes.append(size / 1000)
        print(
            f"a line with {delay * 1000:.0f} ms each way: key to picture median {statistics.median(waits):.0f} ms, longest "
            f"{max(waits):.0f} ms, of it {delay * 2000:.0f} ms for the line; {statistics.median(sizes):.1f} kB a picture, at "
            f"most {max(sizes):.1f} kB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
    finally:
        line.program.terminate()
        line.program.wait()


def delayed() -> None:
    """Measure the time from a key to its screen, without a delay and with 150 ms."""
    for delay in (0.0, 0.15):
        asyncio.run(_measured(delay))
