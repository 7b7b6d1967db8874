"""The states of processes, and what prevents one from running: a stop signal, a frozen control group, a tracer.

One reading is not enough to conclude a stop: a tracer that is attached for a moment is another observer.
"""

import contextlib
import time
from collections.abc import Iterable

import msgspec

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.kernel import control_groups
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import KernelState

_MOMENT_SECONDS = 0.05
_TRACER_SECONDS = 0.4
"""How long another observer may be attached. A tracer that stays longer is a debugger."""
_POLL_SECONDS = 0.003
_UNSEEN = KernelState(state="?")

own_tracers: set[int] = set()
"""Pids of the py-spy children of this process (`pyspy`). As tracers of a rank they do not count as other observers."""


class ProcessStates:
    """The probe of what prevents processes from running, at both ends of the window."""

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
    states: dict[int, KernelState] = {}
    wanted = [target.pid for target in observation.alive()]
    while wanted:
        traced = []
        for pid in wanted:
            try:
                states[pid] = state = kernel_state(observation.proc, pid)
            except ProcError:
                states.pop(pid, None)
                continue
            if is_traced(state):
                traced.append(pid)
        wanted = traced if time.monotonic() < until else []
        if wanted:
            time.sleep(0.004)
    return states


def kernel_state(proc: ProcFS, pid: int) -> KernelState:
    """State, tracer and freezer of a process at this moment. A py-spy of our own does not count as a tracer. Raises ProcError."""
    return msgspec.structs.replace(thread_state(proc, str(pid)), frozen=control_groups.frozen(proc, pid))


def settled_state(proc: ProcFS, pid: int) -> KernelState:
    """The state of a process without the short pause of an observer: a tracer that stays is a debugger. Raises ProcError."""
    if is_traced(kernel_state(proc, pid)):
        wait_for_tracer(proc, pid, Deadline(_TRACER_SECONDS))
    return kernel_state(proc, pid)


def thread_state(proc: ProcFS, task: str) -> KernelState:
    """State and tracer of a process or thread (`PID`, `PID/task/TID`), without the freezer. Raises ProcError."""
    state, tracer_pid = proc.fields(task, "State", "TracerPid")
    state, tracer = (state or "?")[:1], int(tracer_pid or 0)
    if tracer in own_tracers:
        return KernelState(state="S" if state == "t" else state)
    name = ""
    if tracer:
        with contextlib.suppress(ProcError):
            name = proc.stat(str(tracer)).name
    return KernelState(state=state, tracer_pid=tracer, tracer=name)


def is_traced(now: KernelState) -> bool:
    """Whether another tracer is attached. Of a tracer outside of our pid namespace, only the state `t` is visible."""
    return bool(now.tracer_pid) or now.state == "t"


def describe_tracer(now: KernelState) -> str:
    """Name and pid of the tracer, for messages."""
    if not now.tracer_pid:
        return "a tracer outside of this container"
    return f"{now.tracer or 'a process'} (pid {now.tracer_pid})"


def wait_for_tracer(proc: ProcFS, pid: int, tracer_wait: Deadline) -> None:
    """Wait until no tracer is attached, or until `tracer_wait` ends."""
    with contextlib.suppress(ProcError):
        while tracer_wait.remaining() > 0 and is_traced(kernel_state(proc, pid)):
            time.sleep(_POLL_SECONDS)
