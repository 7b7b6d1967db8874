"""Saved evidence: the bundles that a caller names."""

import itertools
import os
from pathlib import Path

from hangdoc import codec
from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.observe.find.discover import Scope
from hangdoc.snapshot import Snapshot, merge

MOST_FILES = 200_000
"""Files of a directory that is named as evidence. A fleet of 100,000 hosts has one bundle each."""


def files(bundles: tuple[Path, ...]) -> list[Path]:
    """The bundles. A directory, as a watchdog writes it, means all bundles in it. Raises CommandError for one without bundles."""
    paths: list[Path] = []
    for path in bundles:
        inside = _list_bundles(path) if path.is_dir() else [path]
        if not inside:
            raise CommandError(f"{path} contains no bundle (*.hangdoc).", USAGE)
        paths += inside
    return paths


def _list_bundles(folder: Path) -> list[Path]:
    """The bundles in a directory. Raises CommandError if it is too large or can't be read."""
    try:
        names = list(itertools.islice(os.scandir(folder), MOST_FILES + 1))
    except OSError as error:
        raise CommandError(f"cannot read {folder}: {error.strerror}.", USAGE) from None
    if len(names) > MOST_FILES:
        raise CommandError(f"{folder} contains more than {MOST_FILES:,} files. Name the bundles.", USAGE)
    return sorted(folder / entry.name for entry in names if entry.name.endswith(".hangdoc"))


def evidence(bundles: tuple[Path, ...]) -> Snapshot:
    """The snapshots of all bundles as one. Raises CommandError if they contain no rank, and BundleError."""
    paths = files(bundles)
    snapshot = merge(tuple(map(codec.read, paths)), tuple(path.name for path in paths))
    check_ranks(snapshot)
    return snapshot


def check_ranks(saved: Snapshot) -> None:
    """Raise CommandError if saved evidence contains no rank."""
    if not any(host.processes for host in saved.hosts):
        raise CommandError("the bundle contains no rank. No training ran on the host when it was saved.", NO_RANK)


def check_saved_or_running(
    bundles: tuple[Path, ...], scope: Scope, hosts: str | None, dumps: Path | None = None
) -> None:
    """Raise CommandError if a caller names saved evidence of two kinds, or also chooses running ranks."""
    if bundles and dumps is not None:
        raise CommandError(
            f"--dumps {dumps} and bundles are different evidence. Diagnose them one after the other.", USAGE
        )
    if (bundles or dumps is not None) and (scope != Scope() or hosts is not None):
        raise CommandError(
            "bundles and --dumps are saved evidence. They cannot be combined with --pid, --run-of, --slurm-job or --hosts, which "
            "choose running ranks.",
            USAGE,
        )
