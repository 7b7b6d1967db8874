"""Native stacks, read after the window: of ranks that made no progress in it, and whose Python stack does not show the operation.

A native dump pauses a rank for 0.4 to 2 s, so a rank that makes progress is never dumped. Of the others, one rank per class
of equal stacks is dumped. If its native stack shows a send or a receive, all ranks of the class are dumped, because the same
source line may wait for different works.

A rank whose card waits in a collective spins, so its CPU time shows nothing. Its record does: a call that is not finished, and
none that was made or finished in the window. Without a record, stack and counters have to do.
"""

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import system_calls
from hangdoc.observe.stacks import attach
from hangdoc.observe.stacks.python_stacks import is_started_to_train
from hangdoc.observe.torch.recorded_progress import rests_on_card
from hangdoc.parse import version
from hangdoc.regex import regex
from hangdoc.snapshot import (
    Clocks,
    Communicators,
    Connection,
    Connections,
    FlightRecorder,
    Frame,
    Interpreter,
    PythonThread,
    Stack,
    Unavailable,
)
from hangdoc.torch_facts import cpp_names, file_names, nccl, thread_names
from hangdoc.torch_facts.known_defects import KNOWN_DEFECTS

_NUMBER = regex(r"-?\d[\d.e+-]*")
_MAX_PER_CLASS = 16
_MIN_SECONDS = 1.0
"""A native dump needs at least this time."""
_IDLE = 0.05
"""Share of a core that a waiting thread may use. A polling thread uses 2 to 4 %."""
_LONG_SLEEP_SECONDS = 1.0
"""The C++ code of torch and NCCL sleeps for milliseconds between two looks at a condition."""
_FUTURE = regex(r"\.wait\(|\.to_here\(|wait_all\(")
NOT_ASKED = Unavailable(reason="C++ frames were not read (--native never)")
NOT_YET = Unavailable(reason="C++ frames have not been read yet")
NOT_NEEDED = Unavailable(reason="not needed")

Gathered = Mapping[int | None, Mapping[str, Any]]
"""The probe results: by pid (None for the host), then by field."""


def read(observation: Observation, gathered: Gathered) -> dict[int, Stack | Unavailable]:
    """Native stacks by pid. A rank that made progress or was held in the window is not in them: it may need one later."""
    if observation.native == "never":
        return dict.fromkeys((target.pid for target in observation.ranks()), NOT_ASKED)
    classes: dict[object, list[Target]] = {}
    chosen: dict[object, Target] = {}
    stacks: dict[int, Stack | Unavailable] = {}
    moved = moved_bytes(gathered)
    for target in observation.ranks():
        evidence = gathered.get(target.pid, {})
        stack = evidence.get("stack")
        if target.held or not isinstance(stack, Stack):
            continue
        unmoved = target.pid not in moved and made_no_progress(target.pid, evidence, observation.window)
        if not unmoved and observation.native != "always":
            continue
        key: object = target.pid if observation.native == "always" else _class(stack)
        classes.setdefault(key, []).append(target)
        stacks[target.pid] = NOT_NEEDED
        if observation.native == "always" or _needs_native(evidence, stack):
            chosen.setdefault(key, target)
    stacks |= _dump(observation, chosen.values())
    differ: list[Target] = []
    for key, first in chosen.items():
        others = [target for target in classes[key] if target is not first]
        native = stacks[first.pid]
        if isinstance(native, Stack) and _in_point_to_point(native):
            differ += others[:_MAX_PER_CLASS]
        else:  # also why it could not be read: then theirs would have been needed
            stacks |= dict.fromkeys((target.pid for target in others), native)
    return stacks | _dump(observation, differ)


def _dump(observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
    targets = list(targets)
    if observation.deadline.remaining() < _MIN_SECONDS:
        for target in targets:
            observation.deadline.miss("native stack", target.pid)
        return {target.pid: Unavailable(reason="no time left") for target in targets}
    stacks = observation.read_together(
        targets,
        lambda t: attach.dump(observation.proc, t.pid, observation.deadline, native=True, locals_=False),
    )
    return {pid: validated(stack) for pid, stack in stacks.items()}


def validated(native: Stack | Unavailable) -> Stack | Unavailable:
    """The stack if it has a frame of torch. Without one it names no operation, and in a container or chroot, where py-spy does
    not find the files, its function names are wrong."""
    if isinstance(native, Unavailable):
        return native
    if any(
        f.native and cpp_names.COMMUNICATION_LIBRARY.search(f.file) for thread in native.threads for f in thread.frames
    ):
        return native
    return Unavailable(
        reason="its native stack has no frame of torch: it waits elsewhere, or py-spy did not find its libraries"
    )


def made_no_progress(pid: int, evidence: Mapping[str, Any], seconds: float) -> bool:
    """Whether the thread that trains made no progress between both readings, which are `seconds` apart: same frames, same
    numbers in them and at module level, and almost no CPU time. With NCCL, its record counts instead of its CPU time."""
    before, after = evidence.get("stack_before"), evidence.get("stack")
    if not isinstance(before, Stack) or not isinstance(after, Stack):
        return False
    if location(before) != location(after) or _numbers_changed(before, after):
        return False
    state = evidence.get("interpreter")
    if isinstance(state, Interpreter):
        now = {local.name: local.text for local in state.globals}
        if any(now.get(local.name, local.text) != local.text for local in state.globals_before):
            return False
    clocks = evidence.get("clocks")
    if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
        return False
    tid = next((thread.tid for thread in after.threads if is_started_to_train(thread)), None) or pid
    kernel = next((thread for thread in clocks.threads if thread.tid == tid), None)
    idle = kernel is not None and kernel.cpu_ns / 1e9 / clocks.window_seconds < _IDLE
    if idle or not _drives_gpus(clocks):
        return idle
    recorded = isinstance(record := evidence.get("recorder"), FlightRecorder) and any(g.on_card for g in record.groups)
    return rests_on_card(evidence, seconds) if recorded else True


def _needs_native(evidence: Mapping[str, Any], stack: Stack) -> bool:
    clocks = evidence.get("clocks")
    if not _drives_gpus(clocks) and (
        _names_operation(stack) or waits_outside_torch(clocks, stack) or _waits_for_answer(evidence, stack)
    ):
        return False
    return not is_at_recorded_call(evidence.get("recorder"), stack) or _may_show_defect(evidence)


def _waits_for_answer(evidence: Mapping[str, Any], stack: Stack) -> bool:
    """Whether the main thread waits for a future in the user's code, the RPC agent of the process has calls without an answer,
    and torch's record has no unfinished call. The record of the agent then says for what it waits, and a pause would make the
    wait look younger in the next look."""
    main = _find_training_thread(stack)
    top = main.frames[0] if main is not None and main.frames else None
    if top is None or top.library or _FUTURE.search(top.source or "") is None:
        return False
    state, record = evidence.get("interpreter"), evidence.get("recorder")
    pending = isinstance(record, FlightRecorder) and any(group.pending for group in record.groups)
    return isinstance(state, Interpreter) and bool(state.rpc_calls) and not pending


def waits_outside_torch(clocks: object, stack: Stack) -> bool:
    """Whether the main thread is in a system call that torch's C++ code does not wait in: a long sleep, the end of a child
    process. Then no C++ frame is torch's."""
    main = _find_training_thread(stack)
    tid = main.tid if main is not None else None
    threads = clocks.threads if isinstance(clocks, Clocks) and tid is not None else ()
    kernel = next((thread for thread in threads if thread.tid == tid), None)
    if kernel is None:
        return False
    return kernel.syscall in system_calls.CHILD_WAITS or (kernel.whole_sleep_seconds or 0.0) >= _LONG_SLEEP_SECONDS


def is_at_recorded_call(record: object, stack: Stack) -> bool:
    """Whether torch's record names what the main thread waits in: a call that is not finished, made at the line of the user's
    code where the thread is. Not below torch's dispatcher, which may wait for any earlier call."""
    main = _find_training_thread(stack)
    if main is None or not isinstance(record, FlightRecorder) or record.made_in_window:
        return False
    if main.frames and file_names.DISPATCHER in main.frames[0].file:
        return False
    own = _find_user_place(main.frames)
    pending = (call for group in record.groups for call in group.pending)
    return own is not None and any(_find_user_place(call.frames) == own for call in pending)


def _find_user_place(frames: Iterable[Frame]) -> tuple[str, str, int] | None:
    """The innermost line of the user's code: the file's name, the function without its class, the line."""
    own = next((frame for frame in frames if not frame.library and not frame.native), None)
    if own is None:
        return None
    return own.file.rpartition("/")[2], own.function.rpartition(".")[2], own.line


def _may_show_defect(evidence: Mapping[str, Any]) -> bool:
    """Whether its NCCL has a known defect of which a C++ frame is the sign."""
    communicators = evidence.get("communicators")
    if not isinstance(communicators, Communicators):
        return False
    loaded = version(communicators.nccl_version or "")
    with_frame = (defect for defect in KNOWN_DEFECTS if defect.library == "nccl" and defect.native is not None)
    return any(defect.affects(loaded, platform.machine()) for defect in with_frame)


def _drives_gpus(clocks: object) -> bool:
    """Whether a process has threads with the names that torch, NCCL and CUDA give theirs."""
    return isinstance(clocks, Clocks) and any(thread_names.uses_card(thread.name) for thread in clocks.threads)


def moved_bytes(gathered: Gathered) -> set[int]:
    """Processes that exchanged bytes with another observed process in the window. Connections to other hosts (trackers) do not
    count, nor does torch's store, which background threads poll, nor the messages with which NCCL's processes keep in touch."""
    connections = gathered.get(None, {}).get("connections")
    if not isinstance(connections, Connections):
        return set()
    listening = {listener.port for listener in connections.listeners}
    pairs = [c for c in connections.connections if not listening & {c.local_port, c.remote_port}]
    owners: dict[tuple[object, ...], Connection] = {(c.namespace, c.local_port, c.remote_port): c for c in pairs}
    with_cards = {pid for pid, fields in gathered.items() if _drives_gpus(fields.get("clocks"))}
    return {
        c.pid
        for c in pairs
        if (c.bytes_moved or 0) > (nccl.KEEPS_ALIVE_BYTES if c.pid in with_cards else 0)
        and (other := owners.get((c.namespace, c.remote_port, c.local_port))) is not None
        and other.pid != c.pid
    }


def _find_training_thread(stack: Stack) -> PythonThread | None:
    """The thread in which a framework trains (a worker of Ray Train), or else the main thread."""
    trains = next(filter(is_started_to_train, stack.threads), None)
    return trains or next(
        (t for t in stack.threads if t.name == "MainThread"), stack.threads[-1] if stack.threads else None
    )


def location(stack: Stack) -> object:
    """A key for the location in the program of the thread that trains: equal for equal frames."""
    main = _find_training_thread(stack)
    return tuple((f.file, f.function, f.line) for f in main.frames) if main is not None else None


def _class(stack: Stack) -> object:
    """A key that is equal for ranks with equal native stacks: the threads that train, and all others that run the user's code,
    have equal frames."""
    user_code = (
        tuple((f.file, f.function, f.line) for f in thread.frames)
        for thread in stack.threads
        if any(not frame.library and not frame.native for frame in thread.frames)
    )
    return (location(stack), frozenset(user_code))


def _numbers_changed(before: Stack, after: Stack) -> bool:
    """Whether a number in the frames of the thread that trains has changed."""
    first, second = _find_training_thread(before), _find_training_thread(after)
    if first is None or second is None:
        return False
    for old, new in zip(first.frames, second.frames, strict=False):
        now = {local.name: local.text for local in new.locals}
        for local in old.locals:
            if _NUMBER.fullmatch(local.text) and now.get(local.name, local.text) != local.text:
                return True
    return False


def _names_operation(stack: Stack) -> bool:
    """Whether the innermost Python frame of the thread that trains already shows the operation that it waits in."""
    main = _find_training_thread(stack)
    if main is None or not main.frames:
        return False
    top = main.frames[0]
    if top.file.endswith(file_names.NAMING):
        return True
    return top.library and "/site-packages/" not in top.file and "/dist-packages/" not in top.file


def _in_point_to_point(native: Stack) -> bool:
    main = _find_training_thread(native)
    return main is not None and any(f.native and cpp_names.SEND_OR_RECEIVE.search(f.function) for f in main.frames)
