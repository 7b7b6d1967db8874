"""Measures the CPU of a whole `diagnose` of two frozen ranks, py-spy included: with its text report, and with --json.

python -m bench one-look; python -m bench.one_look HANGDOC... measures other installed copies beside it, such as one from a
wheel. An editable install whose bytecode is not kept compiles every module again, and so costs more than what users install.
"""

import os
import statistics
import subprocess
import sys

from bench.table import HANGDOC
from hangdoc_trainer.scenarios import SCENARIOS, Started

_ROUNDS = 15


def cpu_seconds(*command: str) -> float:
    """CPU seconds of a command and of the children that it waited for."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} exited with {child.returncode}")
    return used.ru_utime + used.ru_stime


def one_look(*copies: str, rounds: int = _ROUNDS) -> None:
    """Print smallest and median CPU seconds for each installed copy, in alternating rounds."""
    ways = {
        "text": ("--native", "never"),
        "--json": ("--native", "never", "--json"),
        "C++ frames": ("--native", "auto"),
    }
    found: dict[tuple[str, str], list[float]] = {}
    with Started(SCENARIOS["shard-mismatch"]) as run:
        chosen = [word for pid in run.pids for word in ("--pid", str(pid))]
        for _ in range(rounds):
            for way, options in ways.items():
                for copy in copies or (HANGDOC,):
                    cpu = cpu_seconds(copy, "diagnose", *chosen, *options)
                    found.setdefault((way, copy), []).append(cpu)
    for (way, copy), used in found.items():
        print(
            f"diagnose of 2 frozen ranks, {way:10}: {min(used):.3f} s of CPU at least, median {statistics.median(used):.3f} "
            f"(aim 0.25), {len(used)} runs of {copy}",
            flush=True,
        )


if __name__ == "__main__":
    one_look(*sys.argv[1:])
