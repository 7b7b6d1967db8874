"""Stacks of all ranks, twice across the window; of helpers and launchers where they matter; native where needed.

Plain dumps cost 12-22 ms each. Native ones cost half a second, so they are taken only of ranks that stand still and
whose Python stack does not say why, and once per class of equal stacks; but of each rank where that one stack shows a
send or a receive: which of several works a line waits for may differ.
"""

import contextlib
import re
import time
from collections.abc import Iterable

import msgspec

from hangdoc.observe import pyspy
from hangdoc.observe.discover import adopt_helpers
from hangdoc.observe.memory import Memory, Unreadable
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.observe.python_state import Variable, amounts, posted, torch_value
from hangdoc.observe.scene import Evidence, Scene, Target
from hangdoc.observe.source import Sources
from hangdoc.snapshot import Frame, Local, PythonThread, Stack, Unavailable

_HELPERS_PER_RANK = 16
_GPU_THREAD = re.compile(r"^(pt_nccl|nccl|cuda-EvtHandlr)")
_MAX_INSIDE = 60
_POINT_TO_POINT = re.compile(r"(Send|Recv)Work::wait|UnboundBuffer::wait(Send|Recv)")
_MOST_OF_A_CLASS = 16
_C10D = "torch/distributed/distributed_c10d.py"
_WAITS_FOR_A_CHILD = (
    "torch/utils/data/dataloader.py",
    "multiprocessing/connection.py",
    "multiprocessing/queues.py",
    "multiprocessing/popen_fork.py",
    "concurrent/futures/",
    "subprocess.py",
)


class Stacks:
    """The probe."""

    name = "stacks"

    def __init__(self) -> None:
        self._first: dict[int, Stack | Unavailable] = {}
        self._second: dict[int, Stack | Unavailable] = {}
        self._native: dict[int, Stack | Unavailable] = {}
        self._took = 0.0
        self._sources: Sources | None = None

    def open(self, scene: Scene) -> None:
        """Dump every rank, but those whose stack of a moment ago is at hand."""
        began = time.monotonic()
        targets = [t for t in scene.ranks() if t.state not in "ZX" and t.python]
        self._first = self._first_look(scene, targets)
        self._took = time.monotonic() - began

    def during(self, scene: Scene) -> None:
        """Native stacks of ranks that stand still, which take longest; beside them helpers that a rank waits for,
        launchers, and the source of what was seen."""
        adopt_helpers(scene)
        native = scene.pool.submit(self._dump_native, scene) if scene.native != "never" else None
        wanted = [t for t in scene.alive() if t.role == "launcher" and t.python]
        for rank in scene.ranks():
            if _mentions(self._first.get(rank.pid), _WAITS_FOR_A_CHILD):
                helpers = [t for t in scene.alive() if t.role == "helper" and t.owner == rank.pid and t.python]
                wanted += helpers[:_HELPERS_PER_RANK]
        others = self._first_look(scene, wanted)
        if native is not None:
            native.result()
        self._first |= others
        self._sources = Sources(scene.proc)
        for pid, stack in self._first.items():  # most frames are the same at the second look: read their files now
            if isinstance(stack, Stack):
                self._sources.annotate(pid, stack)

    def _dump_native(self, scene: Scene) -> None:
        clocks = {t.pid: _cpu_and_state(scene.proc, t.pid) for t in scene.ranks() if t.state not in "ZX"}
        time.sleep(scene.deadline.remaining(min(0.12, scene.window / 8)))
        chosen: dict[object, Target] = {}
        classes: dict[object, list[Target]] = {}
        for target in scene.ranks():
            stack = self._first.get(target.pid)
            if not isinstance(stack, Stack) or target.held:
                continue
            idle = clocks.get(target.pid) == _cpu_and_state(scene.proc, target.pid) and clocks[target.pid] is not None
            # A rank that spins in the GPU's driver looks like one that computes.
            unclear = not _speaks_for_itself(stack) if idle else _drives_gpus(scene.proc, target.pid)
            key = target.pid if scene.native == "always" else _class(stack)
            classes.setdefault(key, []).append(target)
            if unclear or scene.native == "always":
                chosen.setdefault(key, target)
        self._take_native(scene, chosen.values())
        differ: list[Target] = []
        for key, first in chosen.items():
            others = [target for target in classes[key] if target is not first]
            native = self._native[first.pid]
            if isinstance(native, Stack) and _in_point_to_point(native):
                differ += others[:_MOST_OF_A_CLASS]
            elif isinstance(native, Stack):
                self._native |= dict.fromkeys((target.pid for target in others), native)
        self._take_native(scene, differ)

    def _take_native(self, scene: Scene, targets: Iterable[Target]) -> None:
        targets = list(targets)
        results = scene.each(lambda t: pyspy.dump(t.pid, scene.deadline, native=True, locals_=False), targets)
        self._native |= {target.pid: result for target, result in zip(targets, results, strict=True)}

    def close(self, scene: Scene) -> None:
        """Dump everything seen before once more, and what a rank has started since."""
        for pid in adopt_helpers(scene):
            self._first[pid] = pyspy.dump(pid, scene.deadline)
        self._second = self._dump(scene, [scene.targets[pid] for pid, s in self._first.items() if isinstance(s, Stack)])

    def lead_seconds(self) -> float:
        """How long before the window's end `close` should begin, so that it ends with the window."""
        return self._took + 0.04  # sockets, memory and clocks are read behind them

    def _first_look(self, scene: Scene, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        known = {t.pid: scene.earlier[t.pid] for t in targets if t.pid in scene.earlier}
        return {**known, **self._dump(scene, [t for t in targets if t.pid not in known])}

    def _dump(self, scene: Scene, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        stacks = scene.each(lambda t: pyspy.dump(t.pid, scene.deadline, held=t.held), targets)
        return {target.pid: stack for target, stack in zip(targets, stacks, strict=True)}

    def evidence(self, scene: Scene) -> Iterable[Evidence]:
        """Both stacks with source lines and lengths, and the native one."""
        sources = self._sources or Sources(scene.proc)
        for pid, first in self._first.items():
            second = self._second.get(pid, first)
            if isinstance(second, Stack):
                second = sources.annotate(pid, _with_amounts(scene, pid, second))
            yield pid, "stack_before", first
            yield pid, "stack", second
        for pid, native in self._native.items():
            yield pid, "native", native
        for target in scene.targets.values():
            if target.pid not in self._first:
                reason = _why_not(target)
                yield target.pid, "stack", Unavailable(reason=reason)
                yield target.pid, "stack_before", Unavailable(reason=reason)


def _why_not(target: Target) -> str:
    if target.state in "ZX":
        return "the process has ended"
    return "not needed" if target.python else "not a Python process"


def _mentions(stack: Stack | Unavailable | None, files: tuple[str, ...]) -> bool:
    return isinstance(stack, Stack) and any(
        name in frame.file for thread in stack.threads for frame in thread.frames[:8] for name in files
    )


def _main(stack: Stack) -> PythonThread | None:
    return next((t for t in stack.threads if t.name == "MainThread"), stack.threads[-1] if stack.threads else None)


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


def _drives_gpus(proc: ProcFS, pid: int) -> bool:
    """Whether a process has threads of NCCL: the names that torch and CUDA give them."""
    try:
        return any(_GPU_THREAD.match(proc.stat(f"{pid}/task/{tid}").name) for tid in proc.tids(pid))
    except ProcError:
        return False


def _class(stack: Stack) -> object:
    return tuple(
        (thread.name, tuple((frame.file, frame.function, frame.line) for frame in thread.frames))
        for thread in stack.threads
        if thread.name == "MainThread"
    )


def _cpu_and_state(proc: ProcFS, pid: int) -> tuple[int, str] | None:
    """(whole ms on CPU of the main thread, its state): equal twice means it stands still."""
    try:
        cpu = int(proc.text(f"{pid}/task/{pid}/schedstat").split()[0]) // 1_000_000
        state = proc.stat(f"{pid}/task/{pid}").state
    except (ProcError, ValueError, IndexError):
        return None
    return (cpu, state) if state in "SD" else None


def _with_amounts(scene: Scene, pid: int, stack: Stack) -> Stack:
    """The stack with lengths of containers, and with numbers and lengths inside the objects that the user's own frames
    hold (`loader.dataset.paths`), read from memory: py-spy's texts are short."""
    try:
        image = scene.image(pid)
        with Memory(pid, image.version, str(scene.proc.root)) as memory:
            threads = tuple(
                msgspec.structs.replace(
                    thread,
                    frames=tuple(
                        _measured(memory, f) if not f.library or f.file.endswith(_C10D) else f for f in thread.frames
                    ),
                )
                for thread in stack.threads
            )
            return msgspec.structs.replace(stack, threads=threads)
    except (Unreadable, ProcError):
        return stack


def _as_local(variable: Variable) -> Local:
    return Local(name=variable.name, text=variable.text, length=variable.length)


def _measured(memory: Memory, frame: Frame) -> Frame:
    found: list[Local] = []
    inside: list[Local] = []
    for local in frame.locals:
        length = None
        if local.address is not None:
            with contextlib.suppress(Unreadable):
                if local.text[:1] in "[({":
                    length = memory.length(local.address)
                    if "<P2POp at " in local.text:
                        inside += map(_as_local, posted(memory, local.name, local.address))
                elif local.text.startswith("<") and (text := torch_value(memory, local.address)) is not None:
                    found.append(msgspec.structs.replace(local, text=text))
                    continue
                elif local.text.startswith("<") and len(inside) < _MAX_INSIDE:
                    inside += map(_as_local, amounts(memory, local.name, local.address))
        found.append(msgspec.structs.replace(local, length=length))
    return msgspec.structs.replace(frame, locals=(*found, *inside[:_MAX_INSIDE]))
