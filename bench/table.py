"""Shared by all measurements: the wall time of a command, a line of the table, the progress of a run."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from hangdoc import beacon
from hangdoc_trainer.scenarios import Started

HERE = Path(sys.executable)
HANGDOC, PY_SPY = str(HERE.with_name("hangdoc")), str(HERE.with_name("py-spy"))


def seconds(*command: str) -> float:
    """Wall time of a command in seconds."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def row(what: str, ours: list[float], theirs: list[float], aim: str) -> None:
    """Print a line with both medians and the median of the pairwise ratios."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{what:72} {statistics.median(ours):7.3f} s {statistics.median(theirs):7.3f} s  "
        f"ratio {statistics.median(ratios):6.3f} ({min(ratios):.2f}-{max(ratios):.2f})  aim {aim}",
        flush=True,
    )


def step(run: Started) -> int:
    """The last step that every rank has published."""
    beats: list[beacon.Beat] = run.beats()
    return min(beat.step or 0 for beat in beats)


def seconds_per_step(run: Started, length: float) -> float:
    """Seconds per step of a run in so many seconds from now."""
    first, began = step(run), time.perf_counter()
    time.sleep(length)
    return (time.perf_counter() - began) / (step(run) - first)
