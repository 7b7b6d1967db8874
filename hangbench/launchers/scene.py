"""Runs of several launchers side by side on one host, and what hangdoc says of each."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hangbench.launchers import look
from hangbench.launchers.launched import Launched, Part
from hangbench.launchers.slurm import Slurm


@dataclass(frozen=True)
class Outcome:
    """What was said of one run: by kind of look (`host`, `pid`, `watchdog`), what was wrong."""

    part: Part
    beside: tuple[Part, ...]
    wrong: dict[str, list[str]]
    findings: dict[str, str]
    """By kind of look, the leading finding's code or the verdict."""


def play(parts: Sequence[Part], bundles: Path | None = None) -> list[Outcome]:
    """Start all parts at once, look, and end them. Bundles of the looks are left in a folder where one is given.

    Raises RuntimeError with a run's output where it does not come up.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launchers-")))
        variables: dict[str, str] = {}
        if any(part.launcher.slurm for part in parts):
            variables = stack.enter_context(Slurm(folder / "slurm")).variables
        runs = [
            stack.enter_context(Launched(part, folder / f"run-{number}", variables))
            for number, part in enumerate(parts)
        ]
        for run in runs:
            run.wait()
        return [
            Outcome(run.part, tuple(p for p in parts if p is not run.part), wrong, said)
            for run, (wrong, said) in zip(runs, _looked(runs, bundles), strict=True)
        ]


def _looked(runs: list[Launched], bundles: Path | None) -> list[tuple[dict[str, list[str]], dict[str, str]]]:
    """By run, what is wrong and what was said, by kind of look."""
    found: list[tuple[dict[str, list[str]], dict[str, str]]] = [({}, {}) for _ in runs]
    document = look.diagnose(bundle=_bundle(bundles, "host", *(run.part for run in runs)))
    for (wrong, said), (run, faults) in zip(found, look.wrong_on_the_host(runs, document).items(), strict=True):
        wrong["host"] = faults
        mine = next((job for job in document["jobs"] if look.pids_of(job) & set(run.ranks().values())), None)
        said["host"] = "no job" if mine is None else next((f["code"] for f in mine["findings"]), mine["verdict"])
    for (wrong, _), run in zip(found, runs, strict=True):
        wrong["pid"] = look.wrong_by_pid(run, _bundle(bundles, "pid", run.part))
        if run.part.watchdog is not None:
            wrong["watchdog"] = look.wrong_by_watchdog(run)
    return found


def _bundle(folder: Path | None, kind: str, *parts: Part) -> Path | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    name = "+".join(f"{part.launcher.name}-{part.fault}" for part in parts)
    return folder / f"{kind}-{name}.hangdoc".replace(" ", "_").replace("/", "_")
