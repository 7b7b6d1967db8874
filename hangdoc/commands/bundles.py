"""Bundles on a command line."""

from pathlib import Path

from hangdoc.commands.errors import USAGE, CommandError


def files(bundles: tuple[Path, ...]) -> list[Path]:
    """The bundles, a directory standing for all that lie in it (as a watchdog leaves them)."""
    found: list[Path] = []
    for path in bundles:
        inside = sorted(path.glob("*.hangdoc")) if path.is_dir() else [path]
        if not inside:
            raise CommandError(f"{path} holds no bundle (*.hangdoc).", USAGE)
        found += inside
    return found
