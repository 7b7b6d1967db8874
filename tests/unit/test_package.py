"""What is installed is everything: an editable install does not show what a wheel lacks."""

from fnmatch import fnmatch
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SETUP = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["tool"]["setuptools"]
FOLDERS = {"hangdoc": ROOT / "hangdoc"} | {name: ROOT / folder for name, folder in SETUP["package-dir"].items()}


def folder_of(package: str) -> Path:
    top, *below = package.split(".")
    return FOLDERS[top].joinpath(*below)


def test_every_package_is_named() -> None:
    present = {
        ".".join((top, *path.parent.relative_to(folder).parts))
        for top, folder in FOLDERS.items()
        for path in folder.rglob("__init__.py")
    }
    assert present == set(SETUP["packages"])


def test_every_file_that_is_no_module_is_named() -> None:
    missing = []
    for top, folder in FOLDERS.items():
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc") and "__pycache__" not in path.parts:
                named = (
                    fnmatch(str(path.relative_to(folder_of(package))), pattern)
                    for package, patterns in SETUP["package-data"].items()
                    for pattern in patterns
                    if path.is_relative_to(folder_of(package))
                )
                if not any(named):
                    missing.append(f"{top}: {path}")
    assert not missing
