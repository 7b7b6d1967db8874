"""One case on the card: it is started, looked at, and everything that can be seen of it is kept as files."""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from hangbench.gpu import ras
from hangbench.gpu.case import CardCase
from hangbench.gpu.comparison import compare_with_dump, records_of
from hangbench.look import Look, judged
from hangbench.run import Running
from hangdoc import codec
from hangdoc.observe.torch.recorder_history import Record

IN_RANKS = Path(__file__).parent / "in_ranks"
"""A directory whose sitecustomize lets several ranks share one card."""
_FIRST_RAS_PORT = 28_100
"""Below those that Linux gives to connections, so that they are free."""
_LOOK_SECONDS, _DUMP_SECONDS, _END_SECONDS, _LAST_WORDS_SECONDS = 90.0, 10.0, 60.0, 5.0
_START_SECONDS, _EARLY_SECONDS, _LATE_SECONDS = 80.0, 5.0, 60.0
"""How long a start may take, when a look is taken in it, and when a run that has not become ready is looked at all the same."""
_SHORT_WINDOW = "0.4"
BUNDLE = "auto.hangdoc"


class Trial(msgspec.Struct):
    """What became of a case. Times are seconds since the bench began."""

    case: str
    began: float
    frozen: float | None = None
    """When it was ready and its output had come to rest."""
    looked: float | None = None
    ended: float | None = None
    look_seconds: float | None = None
    verdict: str | None = None
    finding: str | None = None
    culprits: tuple[int, ...] = ()
    early: str | None = None
    """The verdict of a look before the run was ready."""
    again: str | None = None
    """The verdict of a second, short look, only for a control."""
    right: bool | None = None
    """None if there is no answer to score."""
    complaints: str = ""
    recorder: str = ""
    """How hangdoc's reading of torch's record compares with torch's own dump."""
    problems: list[str] = []
    """What of the bench itself failed. The rest continues."""


def variables_of(index: int, folder: Path, card: bool) -> dict[str, str]:
    """The environment of the ranks of the case with this number."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    shared = {
        "PYTHONPATH": str(IN_RANKS), "HANGBENCH_DUMPS": str(folder), "HOME": str(home), "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    if not card:
        return shared | {"CUDA_VISIBLE_DEVICES": ""}
    by_sockets = {f"NCCL_{name}_DISABLE": "1" for name in ("P2P", "SHM", "IB")}
    ras_address = {"NCCL_RAS_ADDR": f"localhost:{_FIRST_RAS_PORT + index}"}
    return shared | by_sockets | ras_address | {"NCCL_SOCKET_IFNAME": "lo"}


class Attempt:
    """A case that is tried now. `clock` gives the seconds since the bench began."""

    def __init__(self, case: CardCase, index: int, folder: Path, card: bool, clock: Callable[[], float]) -> None:
        self.case, self._index, self._folder, self._card, self._clock = case, index, folder, card, clock
        self.trial = Trial(case.name, clock())
        self._run: Running | None = None

    def run(self) -> None:
        """Start it, look, and end it. Whatever fails becomes a problem of the trial."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            variables = variables_of(self._index, self._folder, self._card)
            self._run = Running(
                self.case, self._while_starting, variables=variables, folder=self._folder, start_seconds=_START_SECONDS
            )  # fmt: skip
            with self._run as run:
                self.trial.frozen = self._clock()
                self._look_at(run)
                self._keep_rest(run)
        except BaseException as error:
            self._note("the run", error)
        self.trial.ended = self._clock()

    def end_processes(self) -> None:
        """Kill its ranks, from another thread."""
        if self._run is not None:
            self._run.end_processes()

    def _while_starting(self, run: Running) -> None:
        """A run that starts is not hung. One that does not become ready is looked at before it is given up."""
        age = self._clock() - self.trial.began
        if self.trial.early is None and age > _EARLY_SECONDS:
            self.trial.early = "-"
            self._attempt("the early look", lambda: self._look_early(run))
        if self.trial.looked is None and age > _LATE_SECONDS:
            self._look_at(run)
            self._keep_rest(run)

    def _look_early(self, run: Running) -> None:
        verdict = self._short_look(run, "early")
        if run.ready() == 0:
            self.trial.early = verdict

    def _short_look(self, run: Running, name: str) -> str:
        """The verdict with hangdoc's own patience."""
        self._hangdoc(f"{name}.json", "diagnose", *_pids(run), "--window", _SHORT_WINDOW, "--json",
                      "--save", str(self._folder / f"{name}.hangdoc"))  # fmt: skip
        written = (self._folder / f"{name}.json").read_bytes()
        return str(msgspec.json.decode(written)["verdict"]) if written else "none"

    def _look_at(self, run: Running) -> None:
        bundle, tolerance = self._folder / BUNDLE, f"{self.case.tolerance:g}"
        pids = _pids(run)
        began = time.monotonic()
        self._hangdoc("diagnose.json", "diagnose", *pids, "--patience", tolerance, "--json", "--save", str(bundle))
        self.trial.look_seconds = round(time.monotonic() - began, 1)
        self.trial.looked = self._clock()
        self._attempt(
            "the report", lambda: self._hangdoc("diagnose.txt", "diagnose", str(bundle), "--patience", tolerance)
        )
        self._attempt("the score", lambda: self._score(bundle))

    def _score(self, bundle: Path) -> None:
        note_score(self.trial, look_at_bundle(self.case, bundle))

    def _keep_rest(self, run: Running) -> None:
        """What takes longer, or may disturb the run, comes after the look."""
        folder, ranks, pids = self._folder, run.ranks(), _pids(run)
        for rank, pid in ranks.items():
            self._attempt(f"the threads of rank {rank}", partial(_keep_process, pid, rank, folder))
        self._attempt("native stacks", lambda: self._hangdoc(
            "native.txt", "snapshot", *pids, "--native", "always", "--ras", "always",
            "-o", str(folder / "native.hangdoc")))  # fmt: skip
        self._attempt("torch's own dump", lambda: self._compare_dumps(ranks))
        if self.case.control:
            self._attempt("the second look", lambda: self._look_again(run))
        if self._card:
            self._attempt("RAS", lambda: ras.ask_all(_FIRST_RAS_PORT + self._index, folder))
        if self.case.ends_itself and self._card:
            self._attempt("the end by itself", lambda: _wait_for_end(run, folder))

    def _look_again(self, run: Running) -> None:
        self.trial.again = self._short_look(run, "again")

    def _compare_dumps(self, ranks: Mapping[int, int]) -> None:
        before: dict[int, list[Record]] = {}
        dumps: dict[int, Path] = {}
        for rank, pid in ranks.items():
            self._attempt(f"the record of rank {rank}", partial(_read_into, before, rank, pid))
            if _waits_for_order(pid):
                dumps[rank] = self._folder / f"dump-{rank}.json"
                os.kill(pid, signal.SIGUSR2)
        until = time.monotonic() + _DUMP_SECONDS
        while not all(dump.exists() for dump in dumps.values()) and time.monotonic() < until:
            time.sleep(0.1)
        self.trial.recorder = compare_with_dump(ranks, before, dumps, self._folder / "recorder.txt")

    def _hangdoc(self, output: str, *arguments: str) -> None:
        """Run a command of hangdoc, with what it prints in a file and its exit code and errors in another one."""
        out, errors = self._folder / output, self._folder / f"{output}.stderr"
        with out.open("wb") as file, errors.open("wb") as other:
            done = subprocess.run(
                [sys.executable, "-m", "hangdoc", *arguments], stdout=file, stderr=other, check=False, timeout=_LOOK_SECONDS,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            other.write(f"exit code {done.returncode}\n".encode())

    def _attempt(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self._note(what, error)

    def _note(self, what: str, error: BaseException) -> None:
        self.trial.problems.append(f"{what}: {str(error)[:300] or type(error).__name__}")
        with (self._folder / "problems.txt").open("a") as file:
            file.write(f"{what}\n{''.join(traceback.format_exception(error))}\n")


def look_at_bundle(case: CardCase, bundle: Path) -> Look:
    """The score of a saved look. Raises codec.BundleError or OSError."""
    return judged(case, codec.read(bundle))


def note_score(trial: Trial, look: Look) -> None:
    """Write a score into a trial."""
    score = look.score
    trial.verdict, trial.finding, trial.culprits = score.verdict, score.leading, tuple(sorted(score.blamed))
    trial.right, trial.complaints = score.right, score.complaints()


def _keep_process(pid: int, rank: int, folder: Path) -> None:
    """State, times, kernel function and system call of every thread, and the mapped files, of which versions are read later."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name)):
        words = [task.name]
        for name in ("comm", "stat", "wchan", "syscall"):
            try:
                words.append((task / name).read_text().strip())
            except OSError as error:
                words.append(f"!{error.strerror}")
        lines.append(" | ".join(words))
    (folder / f"threads-{rank}.txt").write_text("\n".join(lines))
    (folder / f"maps-{rank}.txt").write_text(Path(f"/proc/{pid}/maps").read_text())


def _read_into(records: dict[int, list[Record]], rank: int, pid: int) -> None:
    records[rank] = records_of(pid)


def _pids(run: Running) -> list[str]:
    """The options for a look at a run."""
    return [word for pid in run.launchers for word in ("--pid", str(pid))]


def _waits_for_order(pid: int) -> bool:
    """Whether a rank will write its dump: it is not stopped, and blocks SIGUSR2, which would end it otherwise
    (proc_pid_status(5))."""
    lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = {name: value.strip() for name, _, value in lines}
    return fields["State"][0] not in "TtZX" and bool(int(fields["SigBlk"], 16) >> (signal.SIGUSR2 - 1) & 1)


def _wait_for_end(run: Running, folder: Path) -> None:
    """Until torch has ended the ranks, or each has left its record in the home directory: after that, torch may take another
    minute. `left.txt` names what is left there."""
    until = time.monotonic() + _END_SECONDS
    while run.ranks() and len(_left_behind(folder)) < run.case.ranks and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(_LAST_WORDS_SECONDS)
    (folder / "left.txt").write_text("\n".join(_left_behind(folder)) + "\n")


def _left_behind(folder: Path) -> list[str]:
    """The files below the home directory."""
    return [str(path.relative_to(folder)) for path in sorted((folder / "home").rglob("*")) if path.is_file()]
