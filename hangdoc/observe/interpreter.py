"""What a rank's interpreter holds: environment set after the start, variables at module level, process groups.

Reads memory without stopping the process; see `python_state`.
"""

import contextlib
from collections.abc import Iterable, Iterator

from hangdoc.observe.memory import Memory, Unreadable, Unsupported
from hangdoc.observe.observation import Observation, ProbeResult, Target
from hangdoc.observe.precision import precisions
from hangdoc.observe.procfs import age
from hangdoc.observe.python_state import (
    Modules,
    Variable,
    amounts,
    live_environment,
    process_groups,
    variable,
)
from hangdoc.parse import integer
from hangdoc.snapshot import Group, Interpreter, Local, Unavailable

_MAX_VARIABLES = 300
_C10D = "torch.distributed.distributed_c10d"
_STARTING_SECONDS = 10.0
"""The interpreter of a younger process may not be ready, which looks as if it were not understood."""
_CONSEQUENCE = "the module variables, changes of os.environ and process groups of its ranks are unknown"


class InterpreterState:
    """The probe."""

    name = "interpreter"

    def __init__(self) -> None:
        self._first: dict[int, Interpreter | Unavailable] = {}
        self._second: dict[int, Interpreter | Unavailable] = {}
        self._unsupported: set[str] = set()
        """Kinds of interpreters that are not understood: said once, whatever the number of ranks."""

    def open(self, observation: Observation) -> None:
        """Nothing: the look is taken beside the window's other work."""

    def during(self, observation: Observation) -> None:
        """Variables and groups, the first time."""
        for target in observation.ranks():
            if target.state not in "ZX" and target.python:
                self._first[target.pid] = self.read(observation, target)

    def close(self, observation: Observation) -> None:
        """And again."""
        for pid, first in self._first.items():
            if isinstance(first, Interpreter):
                self._second[pid] = self.read(observation, observation.targets[pid], groups=False)

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The second look, with the numbers and the groups of the first."""
        observation.problems += self.problems()
        for pid, first in self._first.items():
            second = self._second.get(pid, first)
            if isinstance(first, Unavailable) or isinstance(second, Unavailable):
                yield pid, "interpreter", first
                continue
            yield (
                pid,
                "interpreter",
                Interpreter(
                    environment=first.environment,
                    globals=second.globals,
                    globals_before=integers(first),
                    groups=first.groups,
                ),
            )

    def read(self, observation: Observation, target: Target, groups: bool = True) -> Interpreter | Unavailable:
        """What the interpreter of a process holds now; without `groups`, only the variables of its module."""
        try:
            image = observation.image(target.pid)
            if image.gap:
                self._note_unsupported(observation, target, image.gap)
            with Memory(target.pid, image.layout, str(observation.proc.root)) as memory:
                wanted = ("__main__", "os", _C10D) if groups else ("__main__",)
                found = Modules(memory, image).namespace(*wanted)
                variables = _variables(memory, found.get("__main__", {}))
                if not groups:
                    return Interpreter(environment={}, globals=variables)
                members: tuple[Group, ...] = ()
                if _C10D in found:
                    with contextlib.suppress(Unreadable):  # torch may keep them elsewhere in another version
                        members = process_groups(memory, found[_C10D])
                return Interpreter(
                    environment=_changed_environment(target, memory, found.get("os", {})),
                    globals=variables,
                    groups=members,
                )
        except Unsupported as error:
            self._note_unsupported(observation, target, str(error))
            return Unavailable(reason=str(error))
        except Unreadable as error:
            return Unavailable(reason=str(error))

    def problems(self) -> list[str]:
        """Kinds of interpreters that were not understood, one sentence each."""
        return [f"{reason}; {_CONSEQUENCE}" for reason in sorted(self._unsupported)]

    def _note_unsupported(self, observation: Observation, target: Target, reason: str) -> None:
        if age(observation.proc, target.start_ticks) >= _STARTING_SECONDS:
            self._unsupported.add(reason)


def integers(interpreter: Interpreter) -> tuple[Local, ...]:
    """The module's variables that are integers."""
    return tuple(local for local in interpreter.globals if integer(local.text) is not None)


def _variables(memory: Memory, namespace: dict[str, int]) -> tuple[Local, ...]:
    found: list[Local] = []
    for name, address in namespace.items():
        if name.startswith("__") or len(found) >= _MAX_VARIABLES:
            continue
        with contextlib.suppress(Unreadable):  # a variable that is none of these kinds, or is just being changed
            value = variable(memory, name, address)
            values = _object_variables(memory, name, address) if value is None else (value,)
            found += [Local(name=v.name, text=v.text, length=v.length) for v in values]
    return tuple(found[:_MAX_VARIABLES])


def _object_variables(memory: Memory, name: str, address: int) -> Iterator[Variable]:
    """What an object computes in, and how much it has."""
    yield from precisions(memory, name, address)
    yield from amounts(memory, name, address)


def _changed_environment(target: Target, memory: Memory, os_module: dict[str, int]) -> dict[str, str]:
    """Variables the process set or changed after its start."""
    now = target.live_environment
    if not now and "environ" in os_module:
        try:
            now = live_environment(memory, os_module)
        except Unreadable:
            return {}
    started = target.environment if isinstance(target.environment, dict) else {}
    return {name: value for name, value in now.items() if started.get(name) != value}
