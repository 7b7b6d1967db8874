"""What a rank's interpreter contains: environment variables set after the start, module variables, process groups.

Reads memory without a pause; see `python_state`.
"""

import contextlib
from collections.abc import Iterable, Iterator

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.memory.memory import Memory, Unreadable, Unsupported
from hangdoc.observe.memory.python_state import (
    Modules,
    Variable,
    amounts,
    live_environment,
    process_groups,
    rpc_workers,
    threads_that_keep_alive,
    variable,
)
from hangdoc.observe.torch import rpc_worker
from hangdoc.observe.torch.precision import precisions
from hangdoc.parse import integer
from hangdoc.procfs import age
from hangdoc.snapshot import Group, Interpreter, Local, OpenCalls, Unavailable
from hangdoc.torch_facts.module_names import C10D, ENGINE_GROUPS, RPC

_MAX_VARIABLES = 300
_MAX_NAME = 200
_STARTING_SECONDS = 10.0
"""In a younger process, the interpreter may not be initialized yet, which looks like an unsupported one."""
_CONSEQUENCE = "the module variables, changes of os.environ and process groups of its ranks are unknown"


class InterpreterState:
    """The probe."""

    name = "interpreter"

    def __init__(self) -> None:
        self._first: dict[int, Interpreter | Unavailable] = {}
        self._second: dict[int, Interpreter | Unavailable] = {}
        self._unsupported: set[str] = set()
        """Reasons why interpreters are not supported. Each is reported once, for any number of ranks."""

    def open(self, observation: Observation) -> None:
        """Nothing: reading takes a while, so it is done in `during`."""

    def during(self, observation: Observation) -> None:
        """Read variables and groups."""
        readable = [target for target in observation.ranks() if target.state not in "ZX" and target.python]
        self._first |= observation.read_each(readable, lambda target: self.read(observation, target))

    def close(self, observation: Observation) -> None:
        """Read the variables again."""
        again = [observation.targets[pid] for pid, first in list(self._first.items()) if isinstance(first, Interpreter)]
        self._second |= observation.read_each(again, lambda target: self.read(observation, target, groups=False))

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The second reading, with the integers and the groups of the first."""
        observation.problems += self.problems()
        for pid, first in list(self._first.items()):
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
                    rpc_name=first.rpc_name,
                    keeps_alive=first.keeps_alive,
                    rpc_calls=second.rpc_calls,
                ),
            )

    def read(self, observation: Observation, target: Target, groups: bool = True) -> Interpreter | Unavailable:
        """Read the interpreter of a process now; without `groups`, only the variables of `__main__`."""
        try:
            image = observation.image(target.pid)
            if image.gap:
                self._note_unsupported(observation, target, image.gap)
            with observation.memory(target.pid) as memory:
                wanted = ("__main__", "os", C10D, RPC, *ENGINE_GROUPS) if groups else ("__main__",)
                modules = Modules(memory, image)
                namespaces = modules.namespace(*wanted)
                variables = _read_variables(memory, namespaces.get("__main__", {}))
                if not groups:
                    calls = _read_rpc(observation, memory)[1] if self._uses_rpc(target.pid) else ()
                    return Interpreter(environment={}, globals=variables, rpc_calls=calls)
                members: tuple[Group, ...] = ()
                if C10D in namespaces:
                    with contextlib.suppress(Unreadable):  # another version of torch may store them elsewhere
                        engine = next((namespaces[name] for name in ENGINE_GROUPS if name in namespaces), None)
                        members = process_groups(memory, namespaces[C10D], engine)
                name, calls = (
                    _read_rpc(observation, memory) if _uses_rpc(memory, namespaces.get(RPC, {})) else (None, ())
                )
                return Interpreter(
                    environment=_read_changed_environment(target, memory, namespaces.get("os", {})),
                    globals=variables,
                    groups=members,
                    rpc_name=name,
                    rpc_calls=calls,
                    keeps_alive=_keeps_alive(memory, modules),
                )
        except Unsupported as error:
            self._note_unsupported(observation, target, str(error))
            return Unavailable(reason=str(error))
        except Unreadable as error:
            return Unavailable(reason=str(error))

    def _uses_rpc(self, pid: int) -> bool:
        """Whether the first reading has found the process's name in RPC."""
        first = self._first.get(pid)
        return isinstance(first, Interpreter) and first.rpc_name is not None

    def problems(self) -> list[str]:
        """Interpreters that are not supported, one sentence each."""
        return [f"{reason}; {_CONSEQUENCE}" for reason in sorted(self._unsupported)]

    def _note_unsupported(self, observation: Observation, target: Target, reason: str) -> None:
        if age(observation.proc, target.start_ticks) >= _STARTING_SECONDS:
            self._unsupported.add(reason)


def integers(interpreter: Interpreter) -> tuple[Local, ...]:
    """The module variables that are integers."""
    return tuple(local for local in interpreter.globals if integer(local.text) is not None)


def _read_variables(memory: Memory, namespace: dict[str, int]) -> tuple[Local, ...]:
    variables: list[Local] = []
    for name, address in namespace.items():
        if name.startswith("__") or len(name) > _MAX_NAME or len(variables) >= _MAX_VARIABLES:
            continue
        with contextlib.suppress(Unreadable):  # a variable of another kind, or one that is changing right now
            value = variable(memory, name, address)
            values = _read_object_variables(memory, name, address) if value is None else (value,)
            variables += [Local(name=v.name, text=v.text, length=v.length) for v in values]
    return tuple(variables[:_MAX_VARIABLES])


def _keeps_alive(memory: Memory, modules: Modules) -> tuple[str, ...]:
    with contextlib.suppress(Unreadable, KeyError):  # another version of Python may store them elsewhere
        return threads_that_keep_alive(memory, modules)
    return ()


def _uses_rpc(memory: Memory, rpc: dict[str, int]) -> bool:
    with contextlib.suppress(Unreadable):
        return bool(rpc_workers(memory, rpc))
    return False


def _read_rpc(observation: Observation, memory: Memory) -> tuple[str | None, tuple[OpenCalls, ...]]:
    """The name of a process in RPC, and the calls that wait for an answer."""
    agent = rpc_worker.read_agent(observation.proc, memory)
    if agent is None:
        return None, ()
    return agent.name, tuple(OpenCalls(worker=worker, count=count) for worker, count in sorted(agent.calls.items()))


def _read_object_variables(memory: Memory, name: str, address: int) -> Iterator[Variable]:
    """The dtypes that an object computes in, and its sizes."""
    yield from precisions(memory, name, address)
    yield from amounts(memory, name, address)


def _read_changed_environment(target: Target, memory: Memory, os_module: dict[str, int]) -> dict[str, str]:
    """Environment variables that the process has set or changed since its start."""
    now = target.live_environment
    if not now and "environ" in os_module:
        try:
            now = live_environment(memory, os_module)
        except Unreadable:
            return {}
    started = target.environment if isinstance(target.environment, dict) else {}
    return {name: value for name, value in now.items() if started.get(name) != value}
