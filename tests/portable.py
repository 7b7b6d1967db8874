"""The single file of hangdoc for tests: the built one where it exists, else one that runs this checkout with this interpreter."""

import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests import pythons

REPOSITORY = Path(__file__).resolve().parents[1]
BUILT = REPOSITORY / "dist/hangdoc.pyz"
TOOLS = ("sh", "env", "id", "stat", "find", "grep", "readlink")
"""What a host without hangdoc, pip and Python has of them."""


def make(folder: Path) -> Path:
    """The file in this folder."""
    path = folder / "hangdoc.pyz"
    if BUILT.exists():
        shutil.copy(BUILT, path)
        return path
    return make_stand_in(folder)


def make_stand_in(folder: Path, first: str = "pass") -> Path:
    """The file that runs this checkout, after the statement `first`."""
    paths = [*(str(REPOSITORY / name) for name in (".", "tui", "trainer")), sysconfig.get_paths()["platlib"]]
    path = folder / "hangdoc.pyz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "__main__.py",
            f"{first}\nimport os, sys\nsys.path[1:1] = {paths}\nos.environ['PATH'] += ':{Path(sys.executable).parent}'\n"
            "from hangdoc.cli.main import main\nmain()\n",
        )
    return path


def interpreters() -> list[str]:
    """Interpreters that run the file: the oldest and the newest ones where the built file exists."""
    found = [command[0] for version in ("3.10", "3.13") if BUILT.exists() and (command := pythons.command(version))]
    own = str(Path(sys.executable).resolve())
    return [*found, own, own][:2]


def tools() -> dict[str, str]:
    """Where the tools of such a host are, by name."""
    return {name: found for name in TOOLS if (found := shutil.which(name)) is not None}
