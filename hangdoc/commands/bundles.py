"""Bundles on a command line."""

from pathlib import Path

from hangdoc.commands.errors import USAGE, CommandError


def files(bundles: tuple[Path, ...]) -> list[Path]:
    """The bundles. A directory, as a watchdog writes it, means all bundles in it. Raises CommandError for one without bundles."""
    found: list[Path] = []
    for path in bundles:
        inside = sorted(path.glob("*.hangdoc")) if path.is_dir() else [path]
        if not inside:
            raise CommandError(f"{path} contains no bundle (*.hangdoc).", USAGE)
        found += inside
    return found
