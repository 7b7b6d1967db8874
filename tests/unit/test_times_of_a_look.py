"""The times of a look: all its ages count from the end of its window, and it takes at least as long as it observes."""

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.cli import pages
from hangdoc.observe.look import polling as polling_module
from hangdoc.observe.look.deep_reader import DeepReader
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.look.polling import Polling
from hangdoc.observe.stacks import native_stacks
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Clocks
from tests.unit.test_observe_parts import TORCH
from tests.unit.test_page import PATIENCE, waiting

_WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the variables of a rank."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **TORCH}
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_its_clock_is_read_before_what_is_read_after_the_window(
    rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native stacks take seconds in a frozen run, and the red line of the page was late by them."""
    began: list[int] = []
    real = native_stacks.read

    def timed(*arguments: object) -> object:
        began.append(time.time_ns() // 1000)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(native_stacks, "read", timed)
    (host,) = observe(Options(pids=(rank.pid,), window=0.1)).hosts
    assert host.wall_us is not None
    assert host.wall_us <= began[0]


def test_it_takes_at_least_as_long_as_it_observes(
    rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window of a poll began with the poll before."""
    monkeypatch.setattr(polling_module, "_LONGEST_WINDOW", 600.0)
    polling = Polling(Options(pids=(rank.pid,), window=0.3))
    try:
        polling.look()
        assert polling._ended is not None
        polling._ended -= 300.0  # as if 300 s had passed since the first poll
        (host,) = polling.look().hosts
        assert host.elapsed_seconds >= host.window_seconds >= 300.0
        # Its ages are from its time: an event was as much too early as the readings of the poll took.
        assert host.wall_us is not None
        assert datetime.datetime.fromisoformat(host.taken_at).timestamp() == pytest.approx(
            host.wall_us / 1e6, abs=0.0011
        )
    finally:
        polling.close()


@pytest.mark.parametrize(("sleep", "expected"), [(0.0, False), (1.2, True)])
def test_the_first_poll_lasts_until_a_rank_has_slept(
    sleep: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that copies a file at a limited rate looked frozen for the first second of `top`, which said so with a bell. The
    sleep counts from the end of the first readings, which take long on a busy machine."""
    read = DeepReader.read

    def slowly(self: DeepReader, *arguments: Any) -> None:
        time.sleep(0.5)
        read(self, *arguments)

    monkeypatch.setattr(DeepReader, "read", slowly)
    code = f"import time\nprint('ready', flush=True)\nwhile True: time.sleep({sleep} or 3600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **TORCH})
    try:
        assert process.stdout is not None
        process.stdout.readline()
        polling = Polling(Options(pids=(process.pid,), window=1.0))
        (host,) = polling.look().hosts
        polling.close()
        (observed,) = (seen for seen in host.processes if seen.pid == process.pid)
        assert isinstance(observed.clocks, Clocks)
        (main,) = observed.clocks.threads
        assert bool(main.voluntary_switches) is expected
    finally:
        process.kill()
        process.communicate()


def test_a_look_is_at_the_end_of_its_window_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when its stacks had been read too."""
    recorded = pages.Pages(PATIENCE)
    now = 1000.0
    monkeypatch.setattr(pages.time, "monotonic", lambda: now)
    monkeypatch.setattr(pages.time, "time", lambda: now)
    for ended, elapsed in ((999.0, 2.0), (1007.0, 4.0), (0.0, 3.0)):
        evidence = waiting(2)
        evidence = replace(evidence, hosts=tuple(replace(host, wall_us=int(ended * 1e6)) for host in evidence.hosts))
        diagnosis = replace(diagnose(evidence, patience=PATIENCE), elapsed_seconds=elapsed)
        recorded.add(evidence, diagnosis)
        now += 10.0
    (recorder,) = recorded._recorders.values()
    assert recorder.seconds == (-18.0, -10.0, 0.0)
