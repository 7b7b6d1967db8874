"""What a live test needs of the machine beside Python."""

import os
import shutil

import pytest

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def needs(*names: str) -> None:
    """Skip the test where one of these is not there: commands, or `root`, who may make namespaces and control groups.

    In CI that is a failure (tests/conftest.py).
    """
    lacks = [name for name in names if not _has(name)]
    if lacks:
        pytest.skip(f"needs {' and '.join(lacks)}: run `make test` as root, which also installs what is missing")


def apart(*command: str) -> list[str]:
    """A command that sees none of the processes that other tests have started, where root may have it so."""
    if os.geteuid() != 0:
        return [*command]
    return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def _has(name: str) -> bool:
    return os.geteuid() == 0 if name == "root" else shutil.which(name, path=_PATH) is not None
