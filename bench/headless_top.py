"""`hangdoc top` without a terminal, in a process of its own, and when it polled."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from hangdoc.commands.looking import Looker

_SETTLED = 8
"""Polls until each rank has been read."""
_START_SECONDS = 90.0
_GLANCE = " continued"


class HeadlessTop:
    """A running `top`."""

    def __init__(self, child: "subprocess.Popen[bytes]", times: Path) -> None:
        self.child, self._times = child, times

    def polls(self) -> list[float]:
        """When each poll arrived, on the monotonic clock."""
        return [float(line) for line in self._lines() if not line.endswith(_GLANCE)]

    def news(self) -> list[float]:
        """When the screen was the present: with each poll, and each time that the ranks were seen to continue."""
        return [float(line.removesuffix(_GLANCE)) for line in self._lines()]

    def _lines(self) -> list[str]:
        return self._times.read_text().splitlines() if self._times.exists() else []

    def measure(self, seconds: float) -> tuple[float, float, float]:
        """(polls per second, news per second, share of a core with its child processes) in so many seconds from now."""
        began, used = time.monotonic(), sum(psutil.Process(self.child.pid).cpu_times()[:4])
        time.sleep(seconds)
        length = time.monotonic() - began
        share = (sum(psutil.Process(self.child.pid).cpu_times()[:4]) - used) / length
        return sum(at > began for at in self.polls()) / length, sum(at > began for at in self.news()) / length, share


@contextmanager
def headless_top(*words: str) -> Iterator[HeadlessTop]:
    """`top` after its first polls. `python WORDS... FILE` has to call `be_top` with this file."""
    with TemporaryDirectory() as folder:
        times = Path(folder, "polls")
        top = HeadlessTop(subprocess.Popen([sys.executable, *words, str(times)]), times)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while len(top.polls()) < _SETTLED and time.monotonic() < deadline:
                time.sleep(0.2)
            yield top
        finally:
            top.child.kill()
            top.child.wait()


def be_top(looker: Looker, times: Path, **options: float) -> None:
    """Be `top` until the process is killed, and append the time of each poll and glance to a file. `options` are those of
    the app."""
    from hangdoc_tui.app import Confirmed, Polled, Top
    from hangdoc_tui.source import Live

    with times.open("a") as file:

        class Noted(Top):
            def on_polled(self, message: Polled) -> None:
                super().on_polled(message)
                print(time.monotonic(), file=file, flush=True)

            def on_confirmed(self, message: Confirmed) -> None:
                super().on_confirmed(message)
                print(f"{time.monotonic()}{_GLANCE}", file=file, flush=True)

        Noted(Live(looker, "bench", 5.0), rate=1.0, **options).run(headless=True, size=(120, 40))
