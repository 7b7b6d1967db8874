"""Runs of several launchers side by side on one host, and hangdoc's diagnosis of each while they hang one after another."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hangbench.launchers import look
from hangbench.launchers.launched import Launched, Part
from hangbench.launchers.slurm import Slurm


@dataclass(frozen=True)
class Round:
    """Runs side by side. All are healthy in the first look; before each further look, the runs in `rounds` hang."""

    parts: tuple[Part, ...]
    rounds: tuple[tuple[int, ...], ...]
    """Positions in `parts`."""
    by_pid: tuple[int, ...] = (1,)
    """The rounds with an additional look at each run by its launcher's pid."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of one kind of look at a run: `host`, `pid` or `watchdog`; `start` for a run that did not start."""

    launcher: str
    beside: tuple[str, ...]
    """The other runs: name, and `healthy`, `uneven` or `stopped`."""
    state: str
    """`healthy`, `uneven` or `stopped`."""
    watched: bool
    kind: str
    job: str
    """The job in words."""
    wrong: tuple[str, ...]


def play(round_: Round, bundles: Path | None = None) -> Iterator[Outcome]:
    """Start all runs at once, look in each round, and end them. `bundles`: a folder for the evidence.

    A run that does not start is an outcome (`start`) with its output. Raises RuntimeError for a run that does not hang.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launchers-")))
        variables: dict[str, str] = {}
        if any(part.launcher.slurm for part in round_.parts):
            variables = stack.enter_context(Slurm(folder / "slurm")).variables
        runs = [
            stack.enter_context(Launched(part, folder / f"run-{number}", variables))
            for number, part in enumerate(round_.parts)
        ]
        for run in list(runs):
            try:
                run.wait()
            except RuntimeError as error:
                runs.remove(run)
                yield _outcome(runs, run, "start", "", [str(error)])
        for number, positions in enumerate(((), *round_.rounds)):
            for run in runs:
                if round_.parts.index(run.part) in positions:
                    run.cause_fault()
            yield from _looked(runs, number in round_.by_pid, bundles, number)


def _looked(runs: list[Launched], by_pid: bool, bundles: Path | None, number: int) -> Iterator[Outcome]:
    document = look.diagnose(bundle=_bundle(bundles, f"{number}-host", runs))
    faults = look.wrong_on_the_host(runs, document)
    for run in runs:
        yield _outcome(runs, run, "host", look.jobs_of(run, document), faults[run])
        if by_pid:
            yield _outcome(runs, run, "pid", *look.by_pid(run, _bundle(bundles, f"{number}-pid", [run])))
        if run.part.watchdog is not None:
            yield _outcome(runs, run, "watchdog", *look.by_watchdog(run))


def _outcome(runs: Sequence[Launched], run: Launched, kind: str, job: str, wrong: list[str]) -> Outcome:
    others = tuple(f"{other.part.launcher.name}, {_state(other)}" for other in runs if other is not run)
    return Outcome(run.part.launcher.name, others, _state(run), run.part.watchdog is not None, kind, job, tuple(wrong))


def _state(run: Launched) -> str:
    return run.part.fault if run.hung else "healthy"


def _bundle(folder: Path | None, kind: str, runs: Sequence[Launched]) -> Path | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    watched = "watched-" if any(run.part.watchdog is not None for run in runs) else ""
    names = "+".join(f"{run.part.launcher.name}-{_state(run)}" for run in runs[:3])
    return folder / f"{names}-{watched}{kind}.hangdoc".replace(" ", "_").replace("/", "_")
