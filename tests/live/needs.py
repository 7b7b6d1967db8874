"""What a live test needs of the machine beside Python."""

import os
import shutil
from typing import NoReturn

import pytest

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def shares(scenario: str) -> pytest.MarkDecorator:
    """For tests that look at the `run` of this scenario (tests/live/conftest.py): one worker, one after the other."""
    return pytest.mark.xdist_group(f"run:{scenario}")


def each(*scenarios: str) -> pytest.MarkDecorator:
    """Once for each `name` of these scenarios, with the `run` that others share."""
    return pytest.mark.parametrize("name", [pytest.param(name, marks=shares(name)) for name in scenarios])


def shared_scenario(item: pytest.Item) -> str | None:
    """The scenario whose run the test shares; None for one that shares none."""
    group = item.get_closest_marker("xdist_group")
    return group.args[0].removeprefix("run:") if group is not None and group.args[0].startswith("run:") else None


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


def as_machine(script: str, *more: str) -> list[str]:
    """The words that run a shell script with processes, mounts and a host name of its own, and with `more` options of unshare."""
    return ["unshare", *more, "--uts", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c", script]
