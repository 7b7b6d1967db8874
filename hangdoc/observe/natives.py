"""Native stacks, after the window: of ranks that did not move in it, and whose Python stack leaves the operation open.

A native dump holds a rank for 0.4 to 2 s. One that moves is never dumped: nothing depends on where it was. The others
are dumped once per class of equal stacks, but each of them where that one stack shows a send or a receive: which of
several works a line waits for may differ.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from hangdoc.observe import attach
from hangdoc.observe.observation import Observation, Target
from hangdoc.regex import regex
from hangdoc.snapshot import Clocks, Connection, Connections, Interpreter, PythonThread, Stack, Unavailable

_GPU_THREAD = regex(r"^(pt_nccl|nccl|cuda-EvtHandlr)")
_POINT_TO_POINT = regex(r"(Send|Recv)Work::wait|UnboundBuffer::wait(Send|Recv)")
_OF_TORCH = regex(r"/lib(torch|c10|cuda|nccl)[^/]*\.so")
_NUMBER = regex(r"-?\d[\d.e+-]*")
_MOST_OF_A_CLASS = 16
_LEAST_SECONDS = 1.0
"""What must be left for a native dump to be begun."""
_IDLE = 0.05
"""Share of a core that a waiting thread may use: one that polls takes 2 to 4 %."""

Gathered = Mapping[int | None, Mapping[str, Any]]
"""What the probes handed over: by pid, or None for the host, and field."""


def take(
    observation: Observation, gathered: Gathered, earlier: Mapping[int, tuple[Stack, Stack]]
) -> dict[int, Stack | Unavailable]:
    """Native stacks by pid. `earlier` holds those of an earlier look with the Python stacks they belong to: a rank that
    still stands there is not dumped again."""
    if observation.native == "never":
        return {}
    classes: dict[object, list[Target]] = {}
    chosen: dict[object, Target] = {}
    found: dict[int, Stack | Unavailable] = {}
    moved = moved_bytes(gathered)
    for target in observation.ranks():
        seen = gathered.get(target.pid, {})
        stack = seen.get("stack")
        if target.held or not isinstance(stack, Stack):
            continue
        stands = target.pid not in moved and stood(target.pid, seen)
        known = earlier.get(target.pid)
        if stands and known is not None and places(known[0]) == places(stack):
            found[target.pid] = known[1]
            continue
        if not stands and observation.native != "always":
            continue
        key: object = target.pid if observation.native == "always" else _class(stack)
        classes.setdefault(key, []).append(target)
        if observation.native == "always" or _unclear(seen, stack):
            chosen.setdefault(key, target)
    found |= _dump(observation, chosen.values())
    differ: list[Target] = []
    for key, first in chosen.items():
        others = [target for target in classes[key] if target is not first]
        native = found[first.pid]
        if isinstance(native, Stack) and _in_point_to_point(native):
            differ += others[:_MOST_OF_A_CLASS]
        elif isinstance(native, Stack):
            found |= dict.fromkeys((target.pid for target in others), native)
    return found | _dump(observation, differ)


def _dump(observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
    targets = list(targets)
    if observation.deadline.remaining() < _LEAST_SECONDS:
        for target in targets:
            observation.deadline.miss("native stack", target.pid)
        return {target.pid: Unavailable(reason="no time left") for target in targets}
    stacks = observation.each(
        lambda t: attach.dump(observation.proc, t.pid, observation.deadline, native=True, locals_=False), targets
    )
    return {target.pid: believed(stack) for target, stack in zip(targets, stacks, strict=True)}


def believed(native: Stack | Unavailable) -> Stack | Unavailable:
    """The stack, unless no frame of it is torch's: it names no operation then, and in a container or chroot, whose files
    py-spy does not find, its names are made up."""
    if isinstance(native, Unavailable):
        return native
    if any(f.native and _OF_TORCH.search(f.file) for thread in native.threads for f in thread.frames):
        return native
    return Unavailable(
        reason="its native stack shows no frame of torch: it waits elsewhere, or in another root directory"
    )


def stood(pid: int, seen: Mapping[str, Any]) -> bool:
    """Whether a process's main thread did not move between both looks: same frames, same numbers in them and at module
    level, and off the processor, unless it is one that NCCL makes spin."""
    before, after = seen.get("stack_before"), seen.get("stack")
    if not isinstance(before, Stack) or not isinstance(after, Stack):
        return False
    if places(before) != places(after) or _numbers(before, after):
        return False
    state = seen.get("interpreter")
    if isinstance(state, Interpreter):
        now = {local.name: local.text for local in state.globals}
        if any(now.get(local.name, local.text) != local.text for local in state.globals_before):
            return False
    clocks = seen.get("clocks")
    if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
        return False
    main = next((thread for thread in clocks.threads if thread.tid == pid), None)
    idle = main is not None and main.cpu_ns / 1e9 / clocks.window_seconds < _IDLE
    return idle or _drives_gpus(clocks)


def _unclear(seen: Mapping[str, Any], stack: Stack) -> bool:
    return _drives_gpus(seen.get("clocks")) or not _speaks_for_itself(stack)


def _drives_gpus(clocks: object) -> bool:
    """Whether a process has threads of NCCL: the names that torch and CUDA give them."""
    return isinstance(clocks, Clocks) and any(_GPU_THREAD.match(thread.name) for thread in clocks.threads)


def moved_bytes(gathered: Gathered) -> set[int]:
    """Processes that exchanged bytes in the window with another process of interest: not with a tracker on the network,
    nor with torch's store, which is asked by threads of its own."""
    connections = gathered.get(None, {}).get("connections")
    if not isinstance(connections, Connections):
        return set()
    listening = {one.port for one in connections.listeners}
    pairs = [c for c in connections.connections if not listening & {c.local_port, c.remote_port}]
    owners: dict[tuple[object, ...], Connection] = {(c.namespace, c.local_port, c.remote_port): c for c in pairs}
    return {
        c.pid
        for c in pairs
        if c.bytes_moved
        and (other := owners.get((c.namespace, c.remote_port, c.local_port))) is not None
        and other.pid != c.pid
    }


def _main(stack: Stack) -> PythonThread | None:
    return next((t for t in stack.threads if t.name == "MainThread"), stack.threads[-1] if stack.threads else None)


def places(stack: Stack) -> object:
    """Where the main thread stands: equal for equal frames."""
    main = _main(stack)
    return tuple((f.file, f.function, f.line) for f in main.frames) if main is not None else None


def _class(stack: Stack) -> object:
    """Equal for ranks whose native stacks are the same: the main threads stand at one place, and so do all others that run the
    user's code. In a worker of Ray Train the main thread runs Ray's loop, the same in every rank, and another thread trains."""
    own = (
        tuple((f.file, f.function, f.line) for f in thread.frames)
        for thread in stack.threads
        if any(not frame.library and not frame.native for frame in thread.frames)
    )
    return (places(stack), frozenset(own))


def _numbers(before: Stack, after: Stack) -> bool:
    """Whether a number in the main thread's frames has changed."""
    first, second = _main(before), _main(after)
    if first is None or second is None:
        return False
    for old, new in zip(first.frames, second.frames, strict=False):
        now = {local.name: local.text for local in new.locals}
        for local in old.locals:
            if _NUMBER.fullmatch(local.text) and now.get(local.name, local.text) != local.text:
                return True
    return False


def _speaks_for_itself(stack: Stack) -> bool:
    """Whether the main thread's innermost frame already names what it waits in."""
    main = _main(stack)
    if main is None or not main.frames:
        return False
    top = main.frames[0]
    if "/torch/distributed/" in top.file:
        return True
    return top.library and "/site-packages/" not in top.file and "/dist-packages/" not in top.file


def _in_point_to_point(native: Stack) -> bool:
    main = _main(native)
    return main is not None and any(f.native and _POINT_TO_POINT.search(f.function) for f in main.frames)
