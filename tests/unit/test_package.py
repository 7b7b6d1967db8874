"""What `pip install .` installs."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {".".join(found.parent.relative_to(ROOT).parts) for found in (ROOT / "hangdoc").rglob("__init__.py")}
    assert {name for name in settings["packages"] if name.split(".")[0] == "hangdoc"} == there
