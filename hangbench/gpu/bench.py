"""Tries the cases, a few at the same time, within a limit, and keeps all evidence whatever happens."""

import io
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hangbench.gpu import faults
from hangbench.gpu.case import CardCase
from hangbench.gpu.table import results_table
from hangbench.gpu.trial import Attempt, Trial

_SHORTEST = 25.0
"""A case that would have less time than this (seconds) is not started."""
_FOR_FAULTS = 35.0
_LARGEST = 8 << 20
"""Bytes of a file that is packed."""


class Bench:
    """All cases on this machine. `log` gets a line for each event."""

    def __init__(
        self, cases: Sequence[CardCase], work: Path, *, card: bool, limit: float, log: Callable[[str], None]
    ) -> None:
        self._waiting = deque(enumerate(cases))
        self._work, self._card, self._limit = work, card, limit
        self._began = time.monotonic()
        self._log = log
        self._attempts: list[Attempt] = []
        self._left_out: list[str] = []
        self._over = threading.Event()
        self.phases: dict[str, tuple[float, float]] = {}
        """Seconds since 1970 in which the card did one thing."""

    def clock(self) -> float:
        """Seconds since the bench began."""
        return round(time.monotonic() - self._began, 1)

    @property
    def trials(self) -> list[Trial]:
        """What has become of the cases that were started."""
        return [attempt.trial for attempt in self._attempts]

    def run(self, at_once: int) -> None:
        """Try all cases, `at_once` at the same time, then what only a card has."""
        self._keep_machine()
        sampling = self._start_sampling() if self._card else None
        try:
            if self._card:
                self._phase("idle", lambda: time.sleep(2.0))
            self._phase("cases", lambda: self._run_cases(at_once))
            if self._card and self._limit - self.clock() > 10:
                self._phase("matmul", lambda: faults.load_card(self._work, 3.0))
            if self._card and self._limit - self.clock() > 10:
                faults.cause_faults(self._work)
            faults.keep_kernel_log(self._work / "dmesg-after.txt")
        finally:
            self._over.set()
            for attempt in self._attempts:
                attempt.end_processes()
            if sampling is not None:
                sampling.terminate()
                sampling.wait(5)

    def _run_cases(self, at_once: int) -> None:
        until = self._limit - (_FOR_FAULTS if self._card else 0.0)
        workers = [threading.Thread(target=self._work_off, args=(until,), daemon=True) for _ in range(at_once)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, until - self.clock()))
        late = [attempt.case.name for attempt in self._attempts if attempt.trial.ended is None]
        if late:
            self._log(f"the limit is over: {', '.join(late)} did not end")

    def _work_off(self, until: float) -> None:
        while not self._over.is_set():
            try:
                index, case = self._waiting.popleft()
            except IndexError:
                return
            if until - self.clock() < _SHORTEST:
                self._left_out.append(case.name)
                self._log(f"{case.name}: not started, no time is left")
                continue
            attempt = Attempt(case, index, self._work / case.name, self._card, self.clock)
            self._attempts.append(attempt)
            attempt.run()
            trial = attempt.trial
            mark = "right" if trial.right else "no answer" if trial.right is None else f"WRONG {trial.complaints}"
            self._log(f"[{self.clock():5.1f}] {case.name:<22}{trial.verdict or '-':<9}{trial.finding or '-':<7}{mark}"
                      + "".join(f"\n        {problem}" for problem in trial.problems))  # fmt: skip

    def _phase(self, name: str, action: Callable[[], object]) -> None:
        began = time.time()
        try:
            action()
        finally:
            self.phases[name] = began, time.time()

    def _start_sampling(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hangbench.gpu.nvml", str(self._work / "nvml.jsonl")]
        with (self._work / "nvml.stderr").open("wb") as errors:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def _keep_machine(self) -> None:
        """What the machine is."""
        faults.keep_kernel_log(self._work / "dmesg-before.txt")
        commands = ["uname -a", "id", "nproc", "free -m", "cat /proc/sys/kernel/yama/ptrace_scope", "which py-spy"]
        commands += ["nvidia-smi", "nvidia-smi topo -m", "ls /sys/class/infiniband"] if self._card else []
        with (self._work / "machine.txt").open("wb") as file:
            for command in commands:
                file.write(f"\n$ {command}\n".encode())
                file.flush()
                try:
                    subprocess.run(command.split(), stdout=file, stderr=subprocess.STDOUT, timeout=10, check=False)
                except (OSError, subprocess.TimeoutExpired) as error:
                    file.write(f"!! {error!r}\n".encode())

    def write_results(self, out: Path) -> str:
        """Write table, results and packed evidence into the folder `out`. The table."""
        out.mkdir(parents=True, exist_ok=True)
        left_out = [*self._left_out, *(case.name for _, case in self._waiting)]
        table = results_table(self.trials, left_out, self.phases, self._work / "nvml.jsonl")
        (self._work / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.trials)))
        (self._work / "phases.json").write_bytes(msgspec.json.encode(self.phases))
        (self._work / "table.txt").write_text(table)
        (out / "table.txt").write_text(table)
        pack(self._work, out / "gpu.tar.xz")
        return table


def pack(folder: Path, archive: Path) -> None:
    """Pack all files of a folder but the large ones and caches. A file that changes meanwhile is packed as it was."""
    with tarfile.open(archive, "w:xz", preset=2) as packed:
        for path in sorted(folder.rglob("*")):
            if set(path.parts) & {"__pycache__", ".triton", ".nv"} or not path.is_file() or path.is_symlink():
                continue
            try:
                content = path.read_bytes()[:_LARGEST]
            except OSError:
                continue
            about = tarfile.TarInfo(f"gpu/{path.relative_to(folder)}")
            about.size, about.mtime = len(content), int(time.time())
            packed.addfile(about, io.BytesIO(content))
