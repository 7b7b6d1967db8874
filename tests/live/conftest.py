"""The run that consecutive live tests share."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangdoc_trainer.scenarios import SCENARIOS, Started
from tests.live.needs import shared_scenario


class SharedRun:
    """One scenario's run, for as long as the tests of its group follow each other. To start a run costs six seconds of CPU."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._run: Started | None = None

    def of(self, name: str) -> Started:
        """The run of this scenario, started if need be."""
        if self.name != name or self._run is None:
            self.end()
            scenario = SCENARIOS[name]
            # The steps of a run that lives for minutes beside other tests rest.
            pace = () if scenario.frozen else ("--step-seconds", "0.1")
            self._run = Started(replace(scenario, arguments=(*scenario.arguments, *pace))).__enter__()
            self.name = name
        return self._run

    def end(self) -> None:
        """End the run that is there; no process of it may be left."""
        run, self._run, self.name = self._run, None, None
        if run is not None:
            run.stop()
            assert not run.offspring.processes(), "ranks were left behind"


_SHARED = SharedRun()


@pytest.fixture
def run(request: pytest.FixtureRequest, can_attach: None) -> Started:
    """The run of the scenario that the test shares with others (`shares` in tests/live/needs.py)."""
    name = shared_scenario(request.node)
    assert name is not None
    return _SHARED.of(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if _SHARED.name is not None and (nextitem is None or shared_scenario(nextitem) != _SHARED.name):
        _SHARED.end()
