"""What prevents a process from running, at both ends of the window: a stop signal, a frozen control group, a tracer.

One reading is not enough to conclude a stop: a tracer that is attached for a moment is another observer.
"""

import time
from collections.abc import Iterable

from hangdoc.observe import attach
from hangdoc.observe.observation import Observation, ProbeResult
from hangdoc.procfs import ProcError
from hangdoc.snapshot import KernelState

_MOMENT_SECONDS = 0.05
_UNSEEN = KernelState(state="?")


class Holds:
    """The probe."""

    name = "holds"

    def __init__(self) -> None:
        self._first: dict[int, KernelState] = {}
        self._second: dict[int, KernelState] = {}

    def open(self, observation: Observation) -> None:
        """Read the state of every process. A process that another observer is reading is read again a little later."""
        self._first |= _read_states(observation)
        _mark_held(observation, self._first)

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the states again."""
        self._second = _read_states(observation)

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = self._second
        _mark_held(observation, self._first)

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Both states of each process."""
        for pid in self._first.keys() | self._second.keys():
            yield pid, "at_start", self._first.get(pid, _UNSEEN)  # unknown for a helper that has started since
            if pid in self._second:
                yield pid, "at_end", self._second[pid]


def _mark_held(observation: Observation, states: dict[int, KernelState]) -> None:
    for pid in states.keys() & observation.targets.keys():
        state = states[pid]
        observation.targets[pid].held = state.frozen or state.state in "Tt"


def _read_states(observation: Observation) -> dict[int, KernelState]:
    until = time.monotonic() + observation.deadline.remaining(_MOMENT_SECONDS)
    found: dict[int, KernelState] = {}
    wanted = [target.pid for target in observation.alive()]
    while wanted:
        traced = []
        for pid in wanted:
            try:
                found[pid] = state = attach.kernel_state(observation.proc, pid)
            except ProcError:
                found.pop(pid, None)
                continue
            if attach.is_traced(state):
                traced.append(pid)
        wanted = traced if time.monotonic() < until else []
        if wanted:
            time.sleep(0.004)
    return found
