"""Measures how long looks stop a healthy run: its longest step and the pauses of its ranks, with and without looks, in one run.

python -m bench pauses. A pause is the time that the main thread of a rank is in state t, as the kernel shows it.
"""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.table import HANGDOC
from hangdoc import beacon
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc_trainer.scenarios import SCENARIOS, Started

_POLL_SECONDS = 0.0005


class Meter(threading.Thread):
    """Polls the ranks of a run: the lengths of their pauses, and the seconds of every published step."""

    def __init__(self, run: Started) -> None:
        super().__init__(daemon=True)
        self.pauses: list[float] = []
        self.steps: list[float] = []
        self._over = threading.Event()
        self._stats = [os.open(f"/proc/{pid}/stat", os.O_RDONLY) for pid in run.rank_pids().values()]
        folder = beacon.directory(os.getuid(), str(run.folder))
        self._beacons = [path.open("rb", buffering=0) for path in folder.glob("*.beacon")]

    def run(self) -> None:
        """Poll until `stop` is called."""
        with suppress(OSError):  # needs root; without it, the meter also measures its own wait for a core
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        since: dict[int, float] = {}
        last: dict[int, tuple[int, float]] = {}
        while not self._over.is_set():
            now = time.monotonic()
            for stat in self._stats:
                if os.pread(stat, 400, 0).rpartition(b") ")[2][:1] == b"t":
                    since.setdefault(stat, now)
                elif stat in since:
                    self.pauses.append(now - since.pop(stat))
            for number, file in enumerate(self._beacons):
                file.seek(0)
                beat = beacon.parse(file.read())
                if beat is not None and beat.step is not None:
                    step, began = last.get(number, (beat.step, now))
                    if beat.step != step:
                        self.steps.append((now - began) / (beat.step - step))
                        last[number] = (beat.step, now)
                    else:
                        last.setdefault(number, (step, now))
            time.sleep(_POLL_SECONDS)

    def stop(self) -> "Meter":
        """End the thread. Returns the meter with its figures."""
        self._over.set()
        self.join()
        for stat in self._stats:
            os.close(stat)
        for file in self._beacons:
            file.close()
        return self


def pauses(looks: int = 200, blocks: int = 10) -> None:
    """200 looks of `diagnose` at two healthy ranks, and 200 of `top` and `watch` (one process), in blocks with pauses between
    them."""
    with Started(SCENARIOS["healthy"]) as run:
        polls = Polling(Options(pids=run.pids)).look
        commands: dict[str, Callable[[], object]] = {
            "diagnose": lambda: subprocess.run(
                [HANGDOC, "diagnose", "--pid", str(run.pids[0])], capture_output=True, check=False
            ),
            "top and watch": polls,
        }
        quiet: list[float] = []
        quiet_steps: list[float] = []
        for name, look in commands.items():
            held: list[float] = []
            steps: list[float] = []
            for _ in range(blocks):
                began = time.monotonic()
                meter = Meter(run)
                meter.start()
                for _ in range(looks // blocks):
                    look()
                held += meter.stop().pauses
                steps += meter.steps
                length = time.monotonic() - began
                meter = Meter(run)
                meter.start()
                time.sleep(length / 2)
                quiet += meter.stop().pauses
                quiet_steps += meter.steps
            _say(name, looks, held, steps)
        _say("nobody", 0, quiet, quiet_steps)


def _say(who: str, looks: int, held: list[float], steps: list[float]) -> None:
    ms = [1000 * value for value in sorted(held)] or [0.0]
    print(
        f"{who:14} {looks:4} looks: {len(held):5} pauses, median {statistics.median(ms):6.1f} ms, 99 % below "
        f"{ms[int(len(ms) * 0.99)]:6.1f}, longest {ms[-1]:7.1f}; steps: median {1000 * statistics.median(steps):6.1f} ms, "
        f"longest {1000 * max(steps):7.1f}; load {Path('/proc/loadavg').read_text().split()[0]}",
        flush=True,
    )
