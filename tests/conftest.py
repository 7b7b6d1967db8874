"""What all tests share: whether real ranks can be started and attached to here."""

import os

import pytest

from hangdoc.observe.abilities import check_all


@pytest.fixture(scope="session")
def can_attach() -> None:
    """Skip where this machine forbids to attach; in CI that is a failure, not a skip."""
    missing = [f"{a.name}: {a.found}" for a in check_all() if not a.works]
    if missing:
        message = "can't attach here: " + "; ".join(missing)
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
