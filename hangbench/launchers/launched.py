"""A run of one of the launchers, with the true pids of its ranks, and the way to make it hang."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from hangbench.launchers.table import Launcher
from hangdoc_trainer.offspring import Offspring

Fault = Literal["uneven", "stopped"]
SCRIPT = Path(__file__).with_name("train.py")
_ROOT = Path(__file__).parents[2]
_READY_SECONDS = 400.0
_FREEZE_SECONDS = 60.0
_FROZEN_SECONDS = 2.0
"""A run counts as frozen after so long without a step. A healthy run takes about 15 steps in that time."""
WORLD = 2


@dataclass(frozen=True)
class Part:
    """The plan of a run: its launcher, the fault of its last rank (its data end, or it is stopped), and the timeout of its
    watchdog in seconds (None: no watchdog)."""

    launcher: Launcher
    fault: Fault
    watchdog: float | None = None


class Launched:
    """A started run. Leaving it ends all its processes. `folder` is for this run only; `variables` are added to its
    environment."""

    def __init__(self, part: Part, folder: Path, variables: dict[str, str]) -> None:
        self.part, self.folder = part, folder
        self.hung = False
        """Whether its fault has happened."""
        self.roots: list[int] = []
        """The pids that a user gives to `--pid`: the launcher, or each rank if the launcher has ended."""
        self._variables = variables
        self._offspring = Offspring()
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Launched":
        self.folder.mkdir(parents=True)
        script = [str(SCRIPT), str(self.folder), "--under", self.part.launcher.under]
        if self.part.watchdog is not None:
            script += ["--watchdog", str(self.part.watchdog)]
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(_ROOT),
            **self._variables, **self.part.launcher.variables, **self._offspring.mark,
        }  # fmt: skip
        with (self.folder / "log").open("wb") as log:
            for command in self.part.launcher.commands(script):
                child = subprocess.Popen(command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
                self._children.append(child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._offspring.end()
        for child in self._children:
            child.kill()
            child.wait()

    def wait(self) -> None:
        """Wait until all ranks train. Raises RuntimeError with the output of the run if they do not."""
        self._wait_until(lambda: len(self.ranks()) == WORLD, _READY_SECONDS)
        self.roots = list(self.ranks().values()) if self.part.launcher.detached else [c.pid for c in self._children]

    def cause_fault(self) -> None:
        """Cause the fault, and wait until no rank takes a step. Raises RuntimeError if they continue."""
        self.hung = True
        if self.part.fault == "stopped":
            os.kill(self.ranks()[WORLD - 1], signal.SIGSTOP)
        else:
            (self.folder / f"end-{WORLD - 1}").touch()
        self._wait_until(self._frozen, _FREEZE_SECONDS)

    def _wait_until(self, so: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not so():
            gone = not self.part.launcher.detached and any(child.poll() is not None for child in self._children)
            if gone or time.monotonic() > until:
                raise RuntimeError(
                    f"{self.part.launcher.name} did not reach its state. It printed:\n{self.log()[-3000:]}"
                )
            time.sleep(0.1)

    def ranks(self) -> dict[int, int]:
        """Rank to pid, as the ranks reported them."""
        pids = {}
        for rank in range(WORLD):
            note = self.folder / f"rank-{rank}"
            if note.exists() and (text := note.read_text()):
                pids[rank] = int(text)
        return pids

    def processes(self) -> set[int]:
        """Every process of the run: launcher, ranks and helpers."""
        return {pid for pid, _ in self._offspring.processes()} | set(self.ranks().values())

    def log(self) -> str:
        """The output of launcher and ranks."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def wait_for_report(self, seconds: float = 90.0) -> Path:
        """Wait for the watchdog's report and return its directory. Raises RuntimeError if there is none."""
        until = time.monotonic() + seconds
        while not (folders := [path.parent for path in self.folder.glob("hangdoc-*/report.txt")]):
            if time.monotonic() > until:
                raise RuntimeError(f"the watchdog wrote no report. The run printed:\n{self.log()[-2000:]}")
            time.sleep(0.1)
        return folders[0]

    def _frozen(self) -> bool:
        steps = [self.folder / f"step-{rank}" for rank in range(WORLD)]
        return all(path.exists() and time.time() - path.stat().st_mtime > _FROZEN_SECONDS for path in steps)
