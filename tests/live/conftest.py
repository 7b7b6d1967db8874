"""Runs that live tests share."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangdoc_trainer.scenarios import SCENARIOS, Started


@pytest.fixture(scope="session")
def healthy(can_attach: None) -> Iterator[Started]:
    """One healthy run for all tests marked SHARES_A_RUN. Its steps rest, because it lives for minutes beside other tests."""
    paced = replace(SCENARIOS["healthy"], arguments=(*SCENARIOS["healthy"].arguments, "--step-seconds", "0.1"))
    with Started(paced) as run:
        yield run
