"""All probes in one list, and what runs them.

`observe` runs all of them across one window. `polling` runs the cheap ones at every poll, and reads what the others read where it
may be new (`deep_reader`). A new probe is one file and one line here.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeVar, cast

from hangdoc.observe.access.abandonable import NotEnded, Threads, TooMany
from hangdoc.observe.access.observation import Observation, PolledProbe, Probe
from hangdoc.observe.gpu.cards import GpuCards
from hangdoc.observe.gpu.kernel_log import KernelLog
from hangdoc.observe.gpu.links import LinkPorts
from hangdoc.observe.gpu.nccl_memory import NcclMemory
from hangdoc.observe.kernel.clocks import CpuClocks
from hangdoc.observe.kernel.control_groups import ControlGroups
from hangdoc.observe.kernel.data_directories import TrainingData
from hangdoc.observe.kernel.machine import HostMachine
from hangdoc.observe.kernel.process_states import ProcessStates
from hangdoc.observe.kernel.sockets import Sockets
from hangdoc.observe.kernel.storage import Storage
from hangdoc.observe.stacks.python_stacks import Stacks
from hangdoc.observe.torch.beacons import Beacons
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.observe.torch.interpreter_state import InterpreterState
from hangdoc.observe.torch.loops import TrainingLoops
from hangdoc.observe.torch.software import Software
from hangdoc.observe.torch.stores import Stores

_T = TypeVar("_T")
_P = TypeVar("_P", bound=Probe)


class Listed(NamedTuple):
    """A probe and what it costs."""

    make: Callable[[bool], Probe]
    """Its argument says whether it will be polled, and not run once."""
    cost: Literal["cheap", "deep"]
    """`cheap` ones take microseconds of a process and no pause. `deep` ones take milliseconds, or pause it."""


PROBES: tuple[Listed, ...] = (
    # The clocks are the first to open: they tell which ranks are at rest, and need no pause to be read.
    Listed(lambda polled: CpuClocks(), "cheap"),
    Listed(lambda polled: ProcessStates(), "cheap"),
    Listed(lambda polled: ControlGroups(), "cheap"),
    Listed(lambda polled: Beacons(), "cheap"),
    Listed(lambda polled: FlightRecorders(whole=not polled), "cheap"),
    # After the records: ranks that count need no position in a file.
    Listed(lambda polled: Storage(), "cheap"),
    # After the records: a poll in which all ranks count may keep the sockets of an earlier one.
    Listed(lambda polled: Sockets(), "cheap"),
    Listed(lambda polled: NcclMemory(), "cheap"),
    Listed(lambda polled: GpuCards(once=not polled), "cheap"),
    Listed(lambda polled: KernelLog(once=not polled), "cheap"),
    Listed(lambda polled: LinkPorts(), "cheap"),
    Listed(lambda polled: Stacks(), "deep"),
    Listed(lambda polled: InterpreterState(), "deep"),
    Listed(lambda polled: TrainingLoops(), "deep"),
    Listed(lambda polled: Stores(), "deep"),
    Listed(lambda polled: TrainingData(), "deep"),
    Listed(lambda polled: HostMachine(), "deep"),
    Listed(lambda polled: Software(), "deep"),
)


def make_probes() -> tuple[Probe, ...]:
    """New probes for one look."""
    return tuple(listed.make(False) for listed in PROBES)


def make_polled_probes() -> tuple[PolledProbe, ...]:
    """New ones for polls: those that are cheap."""
    return tuple(cast(PolledProbe, listed.make(True)) for listed in PROBES if listed.cost == "cheap")


def in_closing_order(probes: Iterable[_P]) -> list[_P]:
    """Some probes in the order in which they close: the stacks first, the clocks exactly at the end of the window, and the
    sockets right before these. To read the memory of many ranks may take seconds on a busy host, and a silence is that at the
    end."""
    last = (Sockets, CpuClocks)
    return sorted(
        probes, key=lambda probe: (not isinstance(probe, Stacks), isinstance(probe, last), isinstance(probe, CpuClocks))
    )


def probe_of(probes: Iterable[Probe], kind: type[_T]) -> _T:
    """The probe of a class among some."""
    return next(probe for probe in probes if isinstance(probe, kind))


class Guard:
    """Runs actions of probes. None of them ends a look, by whatever it raises, or holds it up for longer than it may: then its
    thread is abandoned, and until that comes back, the probe is left out."""

    def __init__(self) -> None:
        self._threads: Threads[str] = Threads("probe", 1)
        self._began: dict[str, float] = {}

    def end(self) -> None:
        """End its threads; one that was abandoned, when it comes back."""
        self._threads.end()

    def run(
        self, observation: Observation, name: str, action: Callable[[Observation], _T], seconds: float
    ) -> _T | None:
        """The result of an action of the probe `name`, which may take `seconds`; None if there is none. The report then says
        why."""
        try:
            began = time.monotonic()
            result = self._threads.run(name, lambda: attempt(observation, name, action), seconds)
        except NotEnded:
            self._began[name] = began
            problem = f"it had not ended after {seconds:.1f} s, and was abandoned; allow more time with --timeout"
        except TooMany:
            problem = f"what it began {time.monotonic() - self._began.get(name, began):.0f} s ago has not ended"
        else:
            return result
        observation.late.append(f"the {name} probe was skipped: {problem}")
        return None


def attempt(observation: Observation, name: str, action: Callable[[Observation], _T]) -> _T | None:
    """The result of an action. An exception becomes a problem in the report and does not end the observation."""
    try:
        return action(observation)
    except Exception as error:
        observation.problems.append(f"the {name} probe failed ({type(error).__name__}: {error}): please report it")
        return None


def evidence_of(probe: Probe) -> Callable[[Observation], list[Any]]:
    """The action that takes the results of a probe."""
    return lambda observation: list(probe.evidence(observation))
