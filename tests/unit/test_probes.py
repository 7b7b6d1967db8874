"""The one list of probes, and the guard that runs them."""

import threading

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation
from hangdoc.observe.kernel.clocks import CpuClocks
from hangdoc.observe.kernel.sockets import Sockets
from hangdoc.observe.look.probes import PROBES, Guard, in_closing_order, make_polled_probes, make_probes
from hangdoc.observe.stacks.python_stacks import Stacks
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.procfs import ProcFS


@pytest.fixture
def observation() -> Observation:
    return Observation(proc=ProcFS(), deadline=Deadline(5), window=0.1, native="never", targets={})


def test_polls_use_the_cheap_probes_of_the_list() -> None:
    every, polled = make_probes(), make_polled_probes()
    cheap = [listed.cost == "cheap" for listed in PROBES]
    assert [type(probe) for probe in polled] == [type(p) for p, is_cheap in zip(every, cheap, strict=True) if is_cheap]
    assert len({probe.name for probe in every}) == len(every)
    assert all(callable(probe.start_next_window) for probe in polled)


def test_a_probe_that_does_not_return_holds_up_one_action_and_is_left_out_until_it_does(
    observation: Observation,
) -> None:
    guard, freed, back = Guard(), threading.Event(), threading.Event()

    def hang(_: Observation) -> str:
        freed.wait()
        back.set()
        return "late"

    assert guard.run(observation, "mounts", hang, 0.05) is None
    assert guard.run(observation, "mounts", lambda _: "now", 0.05) is None  # its thread is still away
    assert guard.run(observation, "clocks", lambda _: "now", 5.0) == "now"
    assert ["mounts" in text for text in observation.late] == [True, True]
    freed.set()
    assert back.wait(5)
    result = None
    while result is None:  # the thread gives itself back just after the action
        result = guard.run(observation, "mounts", lambda _: "again", 5.0)
    assert result == "again"


def test_what_a_probe_raises_is_a_problem(observation: Observation) -> None:
    def fail(_: Observation) -> None:
        raise KeyError("gone")

    assert Guard().run(observation, "mounts", fail, 5.0) is None
    assert observation.problems == ["the mounts probe failed (KeyError: 'gone'): please report it"]


def test_no_thread_outlives_its_guard(observation: Observation) -> None:
    """A process that looks again and again, as the MCP server does, would have ever more of them."""
    guard, freed = Guard(), threading.Event()
    threads: list[threading.Thread] = []

    def note(_: Observation) -> str:
        threads.append(threading.current_thread())
        return "noted"

    def hang(_: Observation) -> None:
        threads.append(threading.current_thread())
        freed.wait()

    assert guard.run(observation, "clocks", note, 5.0) == "noted"
    assert guard.run(observation, "mounts", hang, 0.05) is None
    guard.end()
    threads[0].join(5)
    assert not threads[0].is_alive()
    assert threads[1].is_alive()
    freed.set()
    threads[1].join(5)
    assert not threads[1].is_alive()


def test_the_clocks_open_first_and_close_last() -> None:
    """They tell which ranks are at rest, so that no rank is paused that waits. A pause restarts the clock of its wait."""
    opened = make_probes()
    assert isinstance(opened[0], CpuClocks)
    closed = in_closing_order(opened)
    assert isinstance(closed[0], Stacks) and isinstance(closed[-1], CpuClocks)
    assert len(closed) == len(opened)


def test_a_silence_is_that_at_the_end_of_the_window() -> None:
    """The memory of some twenty ranks was read after the sockets, on a busy host for 2 s: a rank was silent for 0.1 s, and its
    last call was 2.2 s old."""
    assert isinstance(in_closing_order(make_probes())[-2], Sockets)
    polled = [type(probe) for probe in in_closing_order(make_polled_probes())]
    assert polled.index(FlightRecorders) < polled.index(Sockets) == len(polled) - 2  # it tells whether they are kept
