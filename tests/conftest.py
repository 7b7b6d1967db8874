"""What all tests share: what they need of the machine, how many run side by side, and in which order."""

import os
from collections.abc import Generator

import pytest

from hangdoc.observe.abilities import check_all

_WORKERS_PER_PROCESSOR = 3
"""A live test mostly waits for its run to start and to freeze."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means here."""
    return _WORKERS_PER_PROCESSOR * (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The live tests first: each takes long, and the short ones then fill the workers that are done early."""
    items.sort(key=lambda item: item.get_closest_marker("live") is None)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: every worker must find the same names, and packed bytes hold the time."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing is skipped: what would be is a failure there, with the same reason."""
    report = yield
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        report.outcome = "failed"
        report.longrepr = f"In CI no test may be skipped. {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def can_attach() -> None:
    """Skip where this machine forbids to attach."""
    missing = [f"{a.name}: {a.found}" for a in check_all() if not a.works]
    if missing:
        pytest.skip("can't attach here: " + "; ".join(missing))
