"""What was read of a process and of its host: empty where it could not be read."""

import ipaddress
from collections.abc import Iterable, Iterator

from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import (
    BeaconReading,
    Clocks,
    Connection,
    Connections,
    Counter,
    Environment,
    Frame,
    Group,
    Host,
    Interface,
    Interpreter,
    KernelThread,
    Listener,
    Local,
    Machine,
    Process,
    Progress,
    PythonThread,
    Stack,
    Unavailable,
)
from hangdoc.torch_facts.thread_names import is_of_rpc, uses_card


def threads(process: Process) -> tuple[KernelThread, ...]:
    """Its kernel threads."""
    return process.clocks.threads if isinstance(process.clocks, Clocks) else ()


def thread_names(process: Process) -> set[str]:
    """Their names."""
    return {thread.name for thread in threads(process)}


def uses_nccl(process: Process) -> bool:
    """Whether it has threads with the names that torch, NCCL and CUDA give theirs."""
    return any(map(uses_card, thread_names(process)))


def uses_rpc(process: Process) -> bool:
    """Whether it has threads of torch.distributed.rpc."""
    return any(map(is_of_rpc, thread_names(process)))


def python_threads(process: Process) -> tuple[PythonThread, ...]:
    """Its threads that run Python."""
    return process.stack.threads if isinstance(process.stack, Stack) else ()


def threads_before(process: Process) -> tuple[PythonThread, ...]:
    """The same at the first of the two looks."""
    return process.stack_before.threads if isinstance(process.stack_before, Stack) else ()


def native_of(process: Process, thread: PythonThread) -> PythonThread | None:
    """One of these threads with its C++ frames; None where they were not read."""
    threads = process.native.threads if isinstance(process.native, Stack) else ()
    return next((other for other in threads if other.name == thread.name), None)


def frames(process: Process) -> Iterator[Frame]:
    """The frames of all its Python threads."""
    for thread in python_threads(process):
        yield from thread.frames


def groups(process: Process | None) -> tuple[Group, ...]:
    """Its process groups."""
    return process.interpreter.groups if process is not None and isinstance(process.interpreter, Interpreter) else ()


def default_members(process: Process | None) -> tuple[int, ...]:
    """The ranks of its default group; empty if they are not known."""
    return next((group.ranks for group in groups(process) if group.default), ())


def keeps_alive(process: Process) -> tuple[str, ...]:
    """Names of the threads that keep it alive after the end of its main thread."""
    return process.interpreter.keeps_alive if isinstance(process.interpreter, Interpreter) else ()


def rpc_name(process: Process) -> str | None:
    """Its name in torch.distributed.rpc."""
    return process.interpreter.rpc_name if isinstance(process.interpreter, Interpreter) else None


def rpc_calls(process: Process | None) -> dict[str, int]:
    """How many of its calls of torch.distributed.rpc are open, by the name of the worker that has to answer."""
    interpreter = process.interpreter if process is not None else None
    return (
        {calls.worker: calls.count for calls in interpreter.rpc_calls} if isinstance(interpreter, Interpreter) else {}
    )


def module(process: Process | None) -> tuple[Local, ...]:
    """The variables of its `__main__` module."""
    interpreter = process.interpreter if process is not None else None
    return interpreter.globals if isinstance(interpreter, Interpreter) else ()


def variables(process: Process | None, inside: Iterable[Frame]) -> Iterator[Local]:
    """The variables of some of its frames, and then those of its `__main__` module."""
    for frame in inside:
        yield from frame.locals
    yield from module(process)


def beacon(process: Process | None) -> BeaconReading | None:
    """What its trainer publishes."""
    progress = process.progress if process is not None else None
    return progress.beacon if isinstance(progress, Progress) else None


def moved_counters(process: Process | None) -> list[Counter]:
    """The integers of the user's code that changed during the observation."""
    progress = process.progress if process is not None else None
    return [c for c in progress.counters if c.before != c.after] if isinstance(progress, Progress) else []


def connections(host: Host) -> tuple[Connection, ...]:
    """The connections of a host, listening sockets too."""
    return host.connections.connections if isinstance(host.connections, Connections) else ()


def window_of_connections(host: Host) -> float:
    """The seconds in which the bytes of a host's connections were counted."""
    window = host.connections.window_seconds if isinstance(host.connections, Connections) else None
    return host.window_seconds if window is None else window


def listeners(host: Host) -> tuple[Listener, ...]:
    """The processes of a host that listen."""
    return host.connections.listeners if isinstance(host.connections, Connections) else ()


def environment(process: Process | None) -> dict[str, str]:
    """The environment of a rank: the variables that it started with, and those that it has set since."""
    if process is None:
        return {}
    started = process.environment.variables if isinstance(process.environment, Environment) else {}
    inside = process.interpreter.environment if isinstance(process.interpreter, Interpreter) else {}
    return {**started, **inside} if inside else started


# --- addresses and networks -------------------------------------------------------------------------------------------


def interface_with(host: Host, namespace: str | None, address: str) -> Interface | None:
    """The interface that has an address."""
    return next((each for each in interfaces(host, namespace) if address in each.addresses), None)


def interfaces(host: Host, namespace: str | None) -> tuple[Interface, ...]:
    """The interfaces of a network namespace; empty for a container that was observed from outside."""
    if not isinstance(host.machine, Machine):
        return ()
    is_container = None not in (namespace, host.machine.net_namespace) and namespace != host.machine.net_namespace
    return () if is_container else host.machine.interfaces


def networks(host: Host, namespace: str | None) -> dict[str, str]:
    """The networks that a host is in, without loopback, and by which interface."""
    return {
        network: interface.name
        for interface in interfaces(host, namespace)
        if interface.up
        for network in interface.networks
        if not is_loopback(network)
    }


def namespace_of(process: Process | None) -> str | None:
    """The network namespace of a process."""
    return process.namespaces.get("net") if process is not None else None


def within(address: str, network: str) -> bool:
    """Whether an address is in a network; False for invalid text."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network)
    except ValueError:
        return False


def why_stack_is_missing(process: Process) -> str | None:
    """Why its stack could not be read; None if it was, or if it was not to be read: a poll leaves out what may come later."""
    stack = process.stack
    return stack.reason if isinstance(stack, Unavailable) and stack.was_tried else None
