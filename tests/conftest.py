"""What all tests share: what they need of the machine, how many run side by side, and in which order."""

import os
import shutil
from collections.abc import Iterator

import pytest

from hangdoc.observe.abilities import check_all

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_BUSY_SHARE = 3
"""Workers of pytest-xdist per processor: a live test mostly waits for its run to start and to freeze."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means here."""
    return _BUSY_SHARE * (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The live tests first: each takes long, and the short ones then fill the workers that are done early."""
    items.sort(key=lambda item: item.get_closest_marker("live") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools or rights this machine lacks."""
    lacks: set[str] = set()
    for marker in item.iter_markers("needs"):
        lacks.update(name for name in marker.args if not _has(name))
    if lacks:
        pytest.skip(f"needs {', '.join(sorted(lacks))} here: run `make test` as root, which installs it")


def _has(name: str) -> bool:
    """Whether this is `root`, or a command that is there."""
    return os.geteuid() == 0 if name == "root" else shutil.which(name, path=_PATH) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI nothing is skipped: what would be is a failure there, with the same reason."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI nothing may be: {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def can_attach() -> None:
    """Skip where this machine forbids to attach."""
    missing = [f"{a.name}: {a.found}" for a in check_all() if not a.works]
    if missing:
        pytest.skip("can't attach here: " + "; ".join(missing))
