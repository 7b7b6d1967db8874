"""Runs of several launchers side by side on one host, and what hangdoc says of each while one after the other goes wrong."""

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
    """Runs that stand side by side. All are healthy in the first round; in each further round, those of `rounds` go wrong."""

    parts: tuple[Part, ...]
    rounds: tuple[tuple[int, ...], ...]
    """Positions in `parts`."""
    by_pid: tuple[int, ...] = (1,)
    """The rounds in which each run is looked at by its launcher's pid as well."""


class Outcome(msgspec.Struct, frozen=True):
    """What one kind of look (`host`, `pid` or `watchdog`; `start` for a run that did not come up) said of a run."""

    launcher: str
    beside: tuple[str, ...]
    """The other runs: name, and `healthy`, `uneven` or `stopped`."""
    state: str
    """`healthy`, `uneven` or `stopped`."""
    watched: bool
    kind: str
    said: str
    """The job in one line."""
    wrong: tuple[str, ...]


def play(round_: Round, bundles: Path | None = None) -> Iterator[Outcome]:
    """Start all parts at once, look in each round, and end them. Bundles are left in a folder where one is given.

    A run that does not come up is an outcome (`start`) with what it printed; raises RuntimeError for one that does not hang.
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
                    run.go_wrong()
            yield from _looked(runs, number in round_.by_pid, bundles, number)


def _looked(runs: list[Launched], by_pid: bool, bundles: Path | None, number: int) -> Iterator[Outcome]:
    document = look.diagnose(bundle=_bundle(bundles, f"{number}-host", runs))
    faults = look.wrong_on_the_host(runs, document)
    for run in runs:
        yield _outcome(runs, run, "host", look.said_of(run, document), faults[run])
        if by_pid:
            yield _outcome(runs, run, "pid", *look.by_pid(run, _bundle(bundles, f"{number}-pid", [run])))
        if run.part.watchdog is not None:
            yield _outcome(runs, run, "watchdog", *look.by_watchdog(run))


def _outcome(runs: Sequence[Launched], run: Launched, kind: str, said: str, wrong: list[str]) -> Outcome:
    others = tuple(f"{other.part.launcher.name}, {_state(other)}" for other in runs if other is not run)
    return Outcome(run.part.launcher.name, others, _state(run), run.part.watchdog is not None, kind, said, tuple(wrong))


def _state(run: Launched) -> str:
    return run.part.fault if run.hung else "healthy"


def _bundle(folder: Path | None, kind: str, runs: Sequence[Launched]) -> Path | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    watched = "watched-" if any(run.part.watchdog is not None for run in runs) else ""
    names = "+".join(f"{run.part.launcher.name}-{_state(run)}" for run in runs[:3])
    return folder / f"{names}-{watched}{kind}.hangdoc".replace(" ", "_").replace("/", "_")
