"""The label and state of one rank, from all its clocks together: never from CPU alone."""

from __future__ import annotations  # those of closures would be evaluated anew for each rank

import signal
from collections.abc import Callable

from msgspec import Struct

from hangdoc.diagnose import facts, locks, operations, progress
from hangdoc.diagnose.model import BUSY, Wait
from hangdoc.diagnose.stopped import stopped_by
from hangdoc.diagnosis import Label
from hangdoc.snapshot import Clocks, Connection, FileBytes, Frame, KernelThread, Process, Progress, PythonThread, Stack

_STORED_BYTES = 256 * 1024
_TRANSFERRED_BYTES = 4096
_FILE_LOCK = {72, 73}

_SIGNALS = frozenset(signal.Signals)
_WAITS = {"collective": "in-collective", "p2p": "in-p2p", "rendezvous": "in-rendezvous", "store": "in-store"}
_SLEEP = {35, 230}
_CHILD = {61, 247}
_READ = {0, 17, 19, 295}
_WRITE = {1, 18, 20, 296}
_OPEN = {2, 257, 437}
_NETWORK = {44, 45, 46, 47, 42, 43, 288, 299}
_STUCK_IN_FILES = ("nfs", "rpc_wait", "fuse", "wait_for_partner", "folio_wait", "io_schedule", "request_wait", "ceph",
                   "cifs", "lustre", "cl_sync", "pipe_write", "anon_pipe_write", "pipe_wait")  # fmt: skip
_PHASES = {
    "evaluate": "evaluating",
    "metric": "evaluating",
    "sample": "evaluating",
    "checkpoint": "checkpointing",
}
_LOCK_FILES = ("/threading.py", "/queue.py", "/_weakrefset.py", "<frozen importlib._bootstrap>")
_CHILD_FILES = (
    "/subprocess.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/process.py",
    "/concurrent/futures/",
)
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/cmd.py", "/IPython/", "/ipdb/", "/debugpy/", "/pudb/")


class State(Struct, frozen=True):
    """What was concluded about a rank."""

    label: Label | None
    state: str
    why: str
    wait: Wait | None = None
    thread: PythonThread | None = None
    moving: bool = False
    counters_moved: bool = False
    work: str | None = None
    """What goes on besides counters and stacks, in words: files, other connections, child processes."""
    share: float | None = None
    """Share of the window that the thread was on a core."""


def state_of(
    process: Process, helpers: list[Process], pairs: tuple[Connection, ...], others: tuple[Connection, ...] = ()
) -> State:
    """The state of a process that is a rank; `pairs` are its connections to other ranks, `others` to the world."""
    if process.state in "ZX":
        return State("dead", "zombie" if process.state == "Z" else "exited", how_it_ended(process))
    thread = operations.training_thread(process.stack, process.pid)
    wait = operations.wait_of(process, thread)
    kernel = kernel_thread(process, thread)
    share = _share(process, kernel)

    def concluded(
        label: Label | None, state: str, why: str, wait: Wait | None = None, *, moving: bool = False
    ) -> State:
        return State(label, state, why, wait, thread, moving, share=share)

    if (stopped := stopped_by(process)) is not None:
        return concluded("blocked", "stopped", stopped.why)
    # A main thread that waits is not moved by what another thread counts: a monitor counts in every hang.
    mine = progress.user_frames(thread) if wait is not None and operations.is_main(thread, process.pid) else None
    counters = progress.counters_moved(process, among=mine)
    same, bytes_moved = _same_place(process, thread), any(c.bytes_moved for c in pairs)
    moved = counters or not same or bytes_moved
    if thread is None:
        if share is not None and share >= BUSY:
            return concluded(
                "computing", "computing", f"{share:.0%} of a core; its stack could not be read", moving=True
            )
        return concluded(None, "unknown", "its stack could not be read", moving=moved)

    def blocked(state: str, why: str, wait: Wait | None = None) -> State:
        return State("blocked", state, why, wait, thread, moved, counters, share=share)

    def computing(state: str, why: str, work: str | None = None) -> State:
        return State("computing", state, why, None, thread, True, counters, work, share)

    busy = thread.active if share is None else share >= BUSY
    spin = operations.gpu_spin(process, thread) if busy and same and not counters else None
    if spin is not None:
        return concluded("blocked", "in-collective", "spins in the GPU's driver", spin)
    holder = None if busy or moved else locks.gil_holder(process, thread, kernel)
    if holder is not None:
        name = holder.name or holder.tid
        return blocked("waiting-lock", f"its thread {name} holds the GIL and does not give it back")
    if wait is not None and not busy:
        if counters or not same or (bytes_moved and _wakes(process, kernel)):
            return computing("computing", "its loop moves")
        return blocked(_WAITS[wait.kind], _idle(share), wait)
    if busy or counters or not same:
        return computing(_working(process, thread), f"{share:.0%} of a core" if busy and share else "its stack moved")
    return _still(process, thread, kernel, helpers, others, blocked, computing)


def _still(
    process: Process,
    thread: PythonThread,
    kernel: KernelThread | None,
    helpers: list[Process],
    others: tuple[Connection, ...],
    blocked: Callable[[str, str], State],
    computing: Callable[..., State],
) -> State:
    """The state of a rank whose own thread stands still outside of any operation: it may have others work for it."""
    children = _children_at_work(helpers)
    if children and any(f in frame.file for frame in thread.frames for f in facts.COMPILER):
        return computing("compiling", "its compiler processes are at work")
    state, why = _standing(process, thread, kernel)
    work = None if state == "waiting-input" else _stored(process) or _transferred(others)
    if work is not None:
        return computing(_working(process, thread), work, work)
    if children and state == "waiting-data":
        return computing("loading-data", "its dataloader's workers are at work")
    if children and state != "waiting-input":  # a pool's results, a build, a tokenizer: however it waits for them
        return computing("computing", "its child processes are at work", "its child processes are at work")
    return blocked(state, why)


def how_it_ended(process: Process) -> str:
    """The exit code or signal of an ended process, in words (waitpid(2))."""
    code = process.exit_code
    if code is None:
        return "it has ended"
    if code & 0x7F:
        number = code & 0x7F
        return f"killed by {signal.Signals(number).name if number in _SIGNALS else f'signal {number}'}"
    return f"exited with code {code >> 8 & 0xFF}"


def kernel_thread(process: Process, thread: PythonThread | None) -> KernelThread | None:
    """The kernel's thread behind a Python thread, the main thread for none."""
    if not isinstance(process.clocks, Clocks):
        return None
    wanted = thread.tid if thread is not None and thread.tid is not None else process.pid
    threads = process.clocks.threads
    found = next((t for t in threads if t.tid == wanted), None)
    return found or next((t for t in threads if t.tid == process.pid), None)


def _share(process: Process, kernel: KernelThread | None) -> float | None:
    """CPU of the training thread as a share of one core; a compute pool counts where it is at work."""
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0 or kernel is None:
        return None
    return kernel.cpu_ns / 1e9 / process.clocks.window_seconds


def _stored(process: Process) -> str | None:
    """What a process read from storage or wrote to it in the window, in words; None for less than a page or two."""
    if not isinstance(process.files, FileBytes):
        return None
    for name, amount in (("wrote", process.files.written_bytes), ("read", process.files.read_bytes)):
        if amount >= _STORED_BYTES:
            return f"{name} {amount / 1e6:.1f} MB"
    return None


def _transferred(others: tuple[Connection, ...]) -> str | None:
    """What passed between a process and the world in the window, in words: a download, an upload."""
    amount = sum(c.bytes_moved or 0 for c in others if c.state == "ESTABLISHED")
    return f"{amount / 1e3:.0f} kB passed on its other connections" if amount >= _TRANSFERRED_BYTES else None


def _wakes(process: Process, kernel: KernelThread | None) -> bool:
    """Whether a waiting thread keeps being woken: it goes from one operation to the next, at the same line. A look by
    py-spy wakes it a few times."""
    if kernel is None or kernel.voluntary_switches is None or not isinstance(process.clocks, Clocks):
        return False
    return kernel.voluntary_switches > 30 * max(1.0, process.clocks.window_seconds)


def cpu_percent(process: Process) -> float | None:
    """CPU of all threads over the window, in percent of one core."""
    if not isinstance(process.clocks, Clocks) or process.clocks.window_seconds <= 0:
        return None
    return round(sum(t.cpu_ns for t in process.clocks.threads) / 1e7 / process.clocks.window_seconds, 1)


def _same_place(process: Process, thread: PythonThread | None) -> bool:
    """Whether the thread stood at the same lines at both looks; True where one look is missing."""
    if thread is None or not isinstance(process.stack_before, Stack):
        return True
    before = [
        t for t in process.stack_before.threads if t.tid == thread.tid or (t.tid is None and t.name == thread.name)
    ]
    return not before or progress.same_frames(before[0], thread)


def _idle(share: float | None) -> str:
    return "same place at both looks" + (f", {share:.1%} of a core" if share is not None else "")


def _children_at_work(helpers: list[Process]) -> bool:
    for helper in helpers:
        if isinstance(helper.clocks, Clocks) and helper.clocks.window_seconds > 0:
            total = sum(t.cpu_ns for t in helper.clocks.threads)
            if total / 1e9 / helper.clocks.window_seconds >= BUSY:
                return True
    return False


def _working(process: Process, thread: PythonThread) -> str:
    """What kind of work a busy stack is in, by what the trainer publishes, by torch's files, then by what people call
    such functions."""
    frames = thread.frames
    beacon = process.progress.beacon if isinstance(process.progress, Progress) else None
    if beacon is not None and (published := _PHASES.get(beacon.phase)):
        return published
    if any("torch/_inductor/" in f.file or "_dynamo/convert_frame" in f.file for f in frames):
        return "compiling"
    if any(f.file.endswith("torch/serialization.py") or "torch/distributed/checkpoint/" in f.file for f in frames):
        return "checkpointing"
    names = [facts.plain(f.function).lower() for f in progress.user_frames(thread)]
    if any("checkpoint" in name for name in names):
        return "checkpointing"
    if any(word in name for name in names for word in ("eval", "validat", "generate")):
        return "evaluating"
    if progress.fetching(thread) or any(f.file.endswith(facts.DATALOADER) for f in frames):
        return "loading-data"
    return "computing"


def _standing(process: Process, thread: PythonThread, kernel: KernelThread | None) -> tuple[str, str]:
    """(state, why) of a rank that stands still outside of any torch.distributed operation."""
    top: Frame | None = next((f for f in thread.frames if not f.native), None)
    file = top.file if top else ""
    source = (top.source or "") if top else ""
    call = kernel.syscall if kernel else None
    wchan = (kernel.wchan or "") if kernel else ""
    target = (kernel.syscall_file or "") if kernel else ""
    own = progress.user_frames(thread)
    said = own[0].source or "" if own else source
    if any(d in f.file for f in thread.frames for d in _DEBUGGERS):
        return "waiting-input", "in an interactive debugger"
    if (call in _READ and target.startswith("fd 0:")) or ("input(" in source and call not in _SLEEP):
        return "waiting-input", f"reads its standard input ({target or 'input()'})"
    if (
        (kernel is not None and kernel.state == "D")
        or any(word in wchan for word in _STUCK_IN_FILES)
        or call in _OPEN
        or target.startswith("path ")
    ):
        return "waiting-io", f"in the file system ({target or f'wchan {wchan or call}'})"
    if any(f.file.endswith(facts.DATALOADER) for f in thread.frames):
        return "waiting-data", "waits for a dataloader worker"
    if call in _SLEEP:
        return "sleeping", "asleep (nanosleep)"
    if call in _FILE_LOCK:
        return "waiting-lock", f"waits for a lock on a file ({target or '?'})"
    if call in _READ | _WRITE and target and "socket:" not in target and "anon_inode" not in target:
        return "waiting-io", f"{'reads' if call in _READ else 'writes'} {target}"
    if any(name in file for name in _CHILD_FILES) or call in _CHILD:
        return "waiting-child", "waits for a child process"
    if progress.fetching(thread):
        return "waiting-data", "inside its data iterator"
    if call in _NETWORK:
        return "waiting-io", f"waits on the network ({target or wchan})"
    if any(name in file for name in _LOCK_FILES) or call == 202:
        return "waiting-lock", f"waits for a lock{f': {said}' if said else ''}"
    return "sleeping", f"stands still (wchan {wchan or '?'}, system call {call})"
