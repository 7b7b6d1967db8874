"""Starts programs under torchrun for the watchdog's live tests, and ends what they leave."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hangdoc_trainer.offspring import Offspring, free_port

PROGRAMS = Path(__file__).parent / "programs"


class Watched:
    """A run of the program, its output and the directory of its hang."""

    def __init__(self, folder: Path, log: Path, launcher: subprocess.Popen[bytes]) -> None:
        self.folder, self._log, self.launcher = folder, log, launcher

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, text: str, times: int = 1, seconds: float = 200) -> str:
        """Until the ranks have printed this so often."""
        until = time.monotonic() + seconds
        while len(re.findall(text, self.log())) < times:
            assert time.monotonic() < until, self.log()[-3000:]
            time.sleep(0.05)
        return self.log()

    def go_on(self) -> None:
        """End the pause that the program makes."""
        (self.folder / "over").touch()

    def hang(self) -> Path:
        """The directory of its only hang."""
        (found,) = self.folder.glob("hangdoc-*")
        return found


@contextmanager
def running(folder: Path, *command: str, **variables: str) -> Iterator[Watched]:
    """A command in a folder of its own, and with beacons of its own unless the variables say otherwise."""
    offspring = Offspring()
    (folder / "runtime").mkdir(parents=True, exist_ok=True)
    own = {"OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder / "runtime"), **variables}
    log = folder / "log"
    with log.open("wb") as out:
        launcher = subprocess.Popen(
            command, env={**os.environ, **offspring.mark, **own}, cwd=folder, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield Watched(folder, log, launcher)
    finally:
        offspring.end()
        launcher.wait()


def under_torchrun(
    folder: Path,
    program: str,
    *arguments: str,
    options: tuple[str, ...] = (),
    around: tuple[str, ...] = (),
    port: int | None = None,
    **variables: str,
) -> AbstractContextManager[Watched]:
    """Two ranks (or what `options` say) of a program; `around` is a command that the launcher is run by."""
    return running(
        folder, *around, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
        f"--master-port={port or free_port()}", "--monitor-interval=0.2", *options, str(PROGRAMS / program), *arguments,
        **variables,
    )  # fmt: skip


def watched(folder: Path, mode: str, on_hang: str = "report", *options: str) -> AbstractContextManager[Watched]:
    """Two ranks of which the second goes wrong in batch 20."""
    return under_torchrun(folder, "watched.py", mode, on_hang, options=options)
