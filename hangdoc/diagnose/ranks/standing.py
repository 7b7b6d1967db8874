"""Where a rank stands that neither moves nor waits for another rank: exactly one place, and what holds it up there."""

from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.diagnose.ranks import loader, locks, torch_names
from hangdoc.diagnose.ranks.feeding import fetching
from hangdoc.diagnose.ranks.holds import Asleep, AtLock, Elsewhere, Hold, InFile, WaitsForInput
from hangdoc.diagnose.ranks.place import user_frames
from hangdoc.snapshot import Frame, KernelThread, Process, PythonThread

_SLEEP = {35, 230}
_CHILD = {61, 247}
_READ = {0, 17, 19, 295}
_WRITE = {1, 18, 20, 296}
_OPEN = {2, 257, 437}
_NETWORK = {44, 45, 46, 47, 42, 43, 288, 299}
_FILE_LOCK = {72, 73}
_FUTEX = 202
_STUCK_IN_FILES = ("nfs", "rpc_wait", "fuse", "wait_for_partner", "folio_wait", "io_schedule", "request_wait", "ceph",
                   "cifs", "lustre", "cl_sync", "pipe_write", "anon_pipe_write", "pipe_wait")  # fmt: skip
_LOCK_FILES = ("/threading.py", "/queue.py", "/_weakrefset.py", "<frozen importlib._bootstrap>")
_CHILD_FILES = (
    "/subprocess.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/process.py",
    "/concurrent/futures/",
)
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/cmd.py", "/IPython/", "/ipdb/", "/debugpy/", "/pudb/")
_ABANDONED = "end held by nobody"


class Standing(NamedTuple):
    """State, reason in one phrase, and what holds the rank up."""

    state: str
    why: str
    hold: Hold


def standing_of(
    process: Process, thread: PythonThread, kernel: KernelThread | None, helpers: Sequence[Process]
) -> Standing:
    """The first place that fits, the most certain ones first."""
    top: Frame | None = next((f for f in thread.frames if not f.native), None)
    file = top.file if top else ""
    source = (top.source or "") if top else ""
    call = kernel.syscall if kernel else None
    wchan = (kernel.wchan or "") if kernel else ""
    target = (kernel.syscall_file or "") if kernel else ""
    stuck = InFile(wchan=wchan, file=target, abandoned=_ABANDONED in target)
    if any(d in f.file for f in thread.frames for d in _DEBUGGERS):
        return Standing("waiting-input", "in an interactive debugger", WaitsForInput())
    if (call in _READ and target.startswith("fd 0:")) or ("input(" in source and call not in _SLEEP):
        return Standing("waiting-input", f"reads its standard input ({target or 'input()'})", WaitsForInput())
    if (
        (kernel is not None and kernel.state == "D")
        or any(word in wchan for word in _STUCK_IN_FILES)
        or call in _OPEN
        or target.startswith("path ")
    ):
        return Standing("waiting-io", f"in the file system ({target or f'wchan {wchan or call}'})", stuck)
    if any(f.file.endswith(torch_names.DATALOADER) for f in thread.frames):
        return Standing("waiting-data", "waits for a dataloader worker", loader.hold_of(thread, helpers))
    lock = locks.hold_of(process, thread, kernel)
    if call in _SLEEP:
        return Standing("sleeping", "asleep (nanosleep)", lock or Asleep())
    if call in _FILE_LOCK:
        return Standing("waiting-lock", f"waits for a lock on a file ({target or '?'})", lock or Elsewhere())
    if call in _READ | _WRITE and target and "socket:" not in target and "anon_inode" not in target:
        return Standing("waiting-io", f"{'reads' if call in _READ else 'writes'} {target}", stuck)
    return _by_name(thread, call, file, target, wchan, lock)


def _by_name(
    thread: PythonThread, call: int | None, file: str, target: str, wchan: str, lock: AtLock | None
) -> Standing:
    """What the kernel leaves open, by the innermost Python file."""
    own = user_frames(thread)
    said = own[0].source or "" if own else next((f.source or "" for f in thread.frames if not f.native), "")
    other = lock or Elsewhere()
    if any(name in file for name in _CHILD_FILES) or call in _CHILD:
        return Standing("waiting-child", "waits for a child process", other)
    if fetching(thread):
        return Standing("waiting-data", "inside its data iterator", other)
    if call in _NETWORK:
        return Standing("waiting-io", f"waits on the network ({target or wchan})", other)
    if any(name in file for name in _LOCK_FILES) or call == _FUTEX:
        return Standing("waiting-lock", f"waits for a lock{f': {said}' if said else ''}", other)
    return Standing("sleeping", f"stands still (wchan {wchan or '?'}, system call {call})", other)
