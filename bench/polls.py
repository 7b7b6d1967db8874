"""Measures the cost of watching: CPU time of a poll and polls per second of `top`, for 2, 8 and 64 ranks, frozen and healthy,
with and without idle cores.

python -m bench polls; python -m bench.polls RANKS[:STATE[:LOAD]]... for some of these only, as `8` or `64:healthy:idle`.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.headless_top import be_top, headless_top
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling, cpu_seconds
from hangdoc.observe.stacks import pyspy
from hangdoc.priority import give_way
from hangdoc.reasoning.engine import diagnose
from hangdoc_trainer.offspring import free_port

_POLLS = 30
_SETTLED = 8
"""Polls until each rank has been read, including its C++ frames."""


@contextmanager
def running(ranks: int, state: str) -> Iterator[int]:
    """The pid of a process that is the parent of so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(__file__).with_name("many_ranks.py"))
        child = subprocess.Popen(
            [sys.executable, program, str(ranks), state, folder, str(free_port())],
            stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            assert child.stdout is not None  # noqa: S101
            if child.stdout.readline() != "ready\n":
                raise SystemExit(f"the {ranks} ranks did not start")
            time.sleep(1)  # the last rank may not be in its call yet
            yield child.pid
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextmanager
def no_idle_core() -> Iterator[None]:
    """Run one busy process per core."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _costs(pid: int) -> tuple[float, float, float, int, str]:
    """(median CPU ms of a poll without stacks and memory, median CPU ms of its diagnosis, share of a core in total, attaches,
    verdicts) of one poll per second, after the first polls."""
    attached = 0
    real = pyspy.dump

    def counted(*words: object, **options: object) -> object:
        nonlocal attached
        attached += 1
        return real(*words, **options)  # type: ignore[arg-type]

    pyspy.dump = counted  # type: ignore[assignment]
    polling = Polling(Options(pids=(pid,), window=0.5))
    deep = 0.0
    read = polling._deep.read

    def timed(*words: Any) -> None:
        nonlocal deep
        before = cpu_seconds()
        read(*words)
        deep += cpu_seconds() - before

    polling._deep.read = timed  # type: ignore[method-assign]
    cheap, thinking, verdicts = [], [], set()
    began = used = 0.0
    for number in range(_SETTLED + _POLLS):
        if number == _SETTLED:
            began, used, attached = time.monotonic(), cpu_seconds(), 0
        at, cost, deep = time.monotonic(), cpu_seconds(), 0.0
        snapshot = polling.look()
        looked = cpu_seconds()
        found = diagnose(snapshot, patience=5.0)
        if number >= _SETTLED:
            verdicts.add(found.verdict)
            thinking.append(cpu_seconds() - looked)
            cheap.append(looked - cost - deep)
        time.sleep(max(0.0, at + 1 - time.monotonic()))
    share = (cpu_seconds() - used) / (time.monotonic() - began)
    pyspy.dump = real
    polling.close()
    return (
        1000 * statistics.median(cheap),
        1000 * statistics.median(thinking),
        share,
        attached,
        "/".join(sorted(verdicts)),
    )


def polls(*cases: str) -> None:
    """Print a line for each size, state and load, or only for those in `cases`."""
    for ranks, aim in ((2, 20), (8, 20), (64, 100)):
        for state in ("frozen", "healthy"):
            loads = [load for load in ("idle", "busy") if not cases or _among(cases, f"{ranks}:{state}:{load}")]
            with ExitStack() as running_ranks:
                pid = running_ranks.enter_context(running(ranks, state)) if loads else 0
                for load in loads:
                    with ExitStack() as stack:
                        if load == "busy":
                            stack.enter_context(no_idle_core())
                        began, before = time.monotonic(), _busy_seconds()
                        cheap, thinking, share, attached, verdicts = _costs(pid)
                        with headless_top("-m", "bench.polls", "--top", str(pid)) as top:
                            rate, news, whole = top.measure(20)
                        used = (_busy_seconds() - before) / (time.monotonic() - began)
                    print(
                        f"{ranks:3} ranks {state:7} {load:4} ({used:.1f} cores in use): a poll {cheap:6.1f} ms of CPU (aim {aim})"
                        f", its diagnosis {thinking:5.1f}; in total {share:.1%} of a core (aim 5 %), {attached} attaches in "
                        f"{_POLLS} polls, {verdicts}; top {rate:.2f} polls/s, {news:.2f} news/s at {whole:.1%} of a core",
                        flush=True,
                    )


def _among(cases: tuple[str, ...], case: str) -> bool:
    return any(f"{case}:".startswith(f"{one}:") for one in cases)


def _busy_seconds() -> float:
    """CPU seconds that this machine has spent on anything since its start."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the ranks must end with this process
    if sys.argv[1:2] == ["--top"]:
        give_way()  # as hangdoc.cli.top
        be_top(Polling(Options(pids=(int(sys.argv[2]),), window=0.5)), Path(sys.argv[3]))
    else:
        polls(*sys.argv[1:])
