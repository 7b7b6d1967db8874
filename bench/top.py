"""Measures `hangdoc top` with 1,024 ranks at one poll per second: time from a key to the next screen, dropped polls and memory.
Also measures how much it slows down a healthy run."""

import asyncio
import datetime
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.table import HANGDOC, row, seconds_per_step
from hangdoc.reasoning.engine import examine
from hangdoc.snapshot import Clocks, Snapshot
from hangdoc_trainer.scenarios import Node, Scenario, Started
from hangdoc_tui.app import Polled, Top
from hangdoc_tui.source import Poll
from tests.tui.sample_runs import thousand

_KEYS = (
    "x",
    "down",
    "down",
    "s",
    "2",
    "right_square_bracket",
    "3",
    "4",
    "5",
    "6",
    "1",
    "g",
    "g",
    "z",
    "escape",
    "g",
    "g",
    "pagedown",
)


class Series:
    """Polls of 1,024 ranks, each slightly different from the previous one, without delay."""

    title, length = "1,024 ranks", None

    def __init__(self) -> None:
        self._snapshot = thousand()

    def poll(self, number: int) -> Poll:
        """The poll of a live source, without the look itself."""
        snapshot = _changed(self._snapshot, number)
        diagnosis, runs = examine(snapshot, patience=2.0)
        at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=number)
        return Poll(number, at, 0.0, snapshot, diagnosis, runs)


def _changed(snapshot: Snapshot, number: int) -> Snapshot:
    """The snapshot with a different CPU time for every rank."""
    hosts = []
    for host in snapshot.hosts:
        processes = []
        for process in host.processes:
            clocks = process.clocks
            assert isinstance(clocks, Clocks)  # noqa: S101
            first, *others = clocks.threads
            cpu = (process.pid * 7919 + number * 104_729) % 40_000_000
            moved = msgspec.structs.replace(first, cpu_ns=cpu)
            processes.append(
                msgspec.structs.replace(process, clocks=msgspec.structs.replace(clocks, threads=(moved, *others)))
            )
        hosts.append(msgspec.structs.replace(host, processes=tuple(processes)))
    return msgspec.structs.replace(snapshot, hosts=tuple(hosts))


class Typed(NamedTuple):
    """The results of pressing keys. The key `x` does nothing, so its time is that of the harness."""

    waits: dict[str, list[float]]
    """Seconds from each key to the next screen."""
    cpu: dict[str, list[float]]
    """CPU seconds of the drawing thread meanwhile. On a busy machine, only this part of the wait is due to the app."""
    taken: int
    shown: int
    memory_kib: list[int]
    """Memory every half minute."""


async def _typed(seconds: float) -> Typed:
    """Poll once per second, and press a key every quarter of a second."""
    source, shown = Series(), 0

    class Counted(Top):
        def on_polled(self, message: Polled) -> None:
            nonlocal shown
            shown += 1
            super().on_polled(message)

    top = Counted(source, rate=1.0)
    waits: dict[str, list[float]] = {key: [] for key in _KEYS}
    cpu: dict[str, list[float]] = {key: [] for key in _KEYS}
    memory = []
    async with top.run_test(size=(120, 40)) as pilot:
        while top.model is None:
            await pilot.pause(0.05)
        began = looked = time.monotonic()
        while time.monotonic() - began < seconds:
            for key in _KEYS:
                pressed, used = time.perf_counter(), time.thread_time()
                await pilot.press(key)
                waits[key].append(time.perf_counter() - pressed)
                cpu[key].append(time.thread_time() - used)
                await asyncio.sleep(0.25)
            if time.monotonic() - looked > 30:
                looked = time.monotonic()
                memory.append(resident_kib())
        taken = top.poll.number + 1 if top.poll is not None else 0
    return Typed(waits, cpu, taken, shown, memory)


def resident_kib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def keys(seconds: float = 60.0) -> None:
    """Measure the time from a key to the next screen."""
    typed = asyncio.run(_typed(seconds))
    waits, cpu = _over_idle(typed.waits), _over_idle(typed.cpu)
    by_key = ", ".join(f"{key} {statistics.median(times) * 1000:.0f}" for key, times in waits.items())
    print(
        f"1,024 ranks, a poll per second: key to screen, median {_share(waits, 0.5)} ms, 95 % within {_share(waits, 0.95)} ms, "
        f"aim 100 ms ({by_key}); of it CPU of the drawing thread, median {_share(cpu, 0.5)} ms, 95 % within "
        f"{_share(cpu, 0.95)} ms; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {typed.taken} polls taken, "
        f"{typed.taken - typed.shown} dropped; memory {', '.join(f'{m / 1024:.0f}' for m in typed.memory_kib)} MiB"
    )


def _over_idle(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """The times by key, without those of the harness."""
    idle = statistics.median(times["x"])
    return {key: [one - idle for one in each] for key, each in times.items() if key != "x"}


def _share(times: dict[str, list[float]], share: float) -> str:
    """Milliseconds until this share of all keys has its screen."""
    ordered = sorted(one for each in times.values() for one in each)
    return f"{ordered[int(len(ordered) * share)] * 1000:.0f}"


def slow_down(rounds: int = 10, length: float = 6.0) -> None:
    """A healthy trainer's seconds a step under `hangdoc top --rate 1`, against none: with a core left, and with none."""
    for ranks in (1, os.cpu_count() or 1):
        _slow_down(ranks, rounds, length)


def _slow_down(ranks: int, rounds: int, length: float) -> None:
    with Started(Scenario("bench", "a healthy run", (Node(ranks=ranks),), frozen=False)) as run:
        quiet, watched = [], []
        for _ in range(rounds):
            quiet.append(seconds_per_step(run, length))
            command = [HANGDOC, "top", "--rate", "1", *(word for pid in run.pids for word in ("--pid", str(pid)))]
            terminal = ["script", "--quiet", "--command", " ".join(command), "/dev/null"]
            child = subprocess.Popen(
                terminal, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "TERM": "xterm-256color"},
            )  # fmt: skip
            try:
                time.sleep(4.0)  # until it has started
                watched.append(seconds_per_step(run, length))
            finally:
                child.terminate()
                child.wait()
    row(
        f"step, {ranks} healthy ranks on {os.cpu_count()} cores, hangdoc top --rate 1, against none",
        watched,
        quiet,
        "1.01",
    )


if __name__ == "__main__":
    keys(float(sys.argv[1]) if sys.argv[1:] else 60.0)
