"""What a live test needs of the machine beside Python."""

import os
import shutil
from typing import NoReturn

import pytest

SHARES_A_RUN = pytest.mark.xdist_group("healthy")
"""For tests that use the one `healthy` run (tests/live/conftest.py): they take place on one worker, one after the other."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def lacks(reason: str) -> NoReturn:
    """Skip the test; in CI, where everything is installed, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI this test may not be skipped: {reason}", pytrace=False)
    pytest.skip(reason)


def needs(*names: str) -> None:
    """Skip the test where one of these is not there: commands, or `root`, who may make namespaces and control groups."""
    absent = [name for name in names if not _has(name)]
    if absent:
        lacks(f"needs {' and '.join(absent)}: run `make test` as root, which also installs what is missing")


def apart(*command: str) -> list[str]:
    """A command that sees none of the processes that other tests have started, where root may have it so."""
    if os.geteuid() != 0:
        return [*command]
    return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def _has(name: str) -> bool:
    return os.geteuid() == 0 if name == "root" else shutil.which(name, path=_PATH) is not None
