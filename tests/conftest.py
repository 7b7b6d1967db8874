"""What all tests share: what they need of the machine, how many run side by side, and in which order."""

import os
import re
import signal

import pytest

from hangbench.leftovers import end_with_this_process
from hangdoc.observe.look.abilities import check_all
from tests.live.needs import lacks

_WORKERS_PER_PROCESSOR = 2.5
"""A live test mostly waits for its run to start and to freeze."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means here."""
    return int(_WORKERS_PER_PROCESSOR * (os.cpu_count() or 1))


def pytest_configure() -> None:
    """Let no process outlive the run. And accept SIGINT: a shell starts a background job with SIGINT ignored, and all of its
    processes inherit that. Tests send this signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # For the run and for each of its workers, which may crash. `make` ends only a shell, so its pid comes from the Makefile.
    make = os.environ.pop("HANGDOC_MAKE_PID", None)
    end_with_this_process(*([int(make)] if make else []))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that the short ones fill the workers that are done early: tests with a bound of their own, then
    groups that share a run, then the other live tests, then the rest."""
    long = ("timeout", "xdist_group", "live")
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in long])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """pytest-xdist adds the group to a test's name. Without it, `--last-failed` finds the test again when it runs alone."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {re.sub(r"@[\w:-]+$", "", name): True for name in failed})


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: every worker must find the same names, and packed bytes hold the time."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def can_attach() -> None:
    """Skip where this machine forbids to attach; in CI that is a failure."""
    missing = [f"{a.name}: {a.found}" for a in check_all() if not a.works]
    if missing:
        lacks("can't attach here: " + "; ".join(missing))
