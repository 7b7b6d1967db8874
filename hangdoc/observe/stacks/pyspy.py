"""py-spy: the Python stacks of a running process, read from outside (https://github.com/benfred/py-spy).

py-spy pauses a process for some milliseconds (PTRACE_SEIZE: if py-spy dies, the kernel resumes the process). With
`--nonblocking` it reads the process without a pause. `attach`, the only caller, decides which of the two is safe.
"""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hangdoc import untrusted
from hangdoc.observe.access import isolation
from hangdoc.observe.access.bounded_child import BoundedChild, OutputTooLong
from hangdoc.observe.access.owner_rights import Rights
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.kernel.process_states import own_tracers
from hangdoc.program import is_library
from hangdoc.snapshot import Frame, Local, PythonThread, Stack

_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp")
"""Ends of the names of source files that are not Python."""
_MAX_OUTPUT_BYTES = 16 << 20
"""100 threads of 60 frames take 9 MB."""
_MAX_FRAMES = 6_000
"""Of one process, all threads together."""
_MAX_CHARACTERS = 4 << 20
"""In the frames of one process. Half of it is for variables."""
_MEMORY_BYTES = {False: 512 << 20, True: 2 << 30}
"""What py-spy may allocate, without and with native frames. It takes 2 and 17 MiB for a rank with the CPU build of torch."""
_MAX_TEXT = 240
_MAX_NAME = 200
"""Of variables and threads. The rules search in names, which a program may make as long as it likes."""
_MAX_FUNCTION, _MAX_FILE = 2_000, 4_096
_MAX_LOCALS = 80


class _Local(msgspec.Struct):
    name: str
    addr: int = 0
    arg: bool = False
    repr: str | None = None


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0
    module: str | None = None
    locals: list[_Local] | None = None


class _Thread(msgspec.Struct):
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[msgspec.Raw] = []


def executable() -> str | None:
    """The path of py-spy: in `bin` beside hangdoc's package (hangdoc.pyz, and `pip install --target`), next to this Python, where
    its installer has put it, else on the PATH; None if it is not installed."""
    packages = os.path.dirname(os.path.dirname(untrusted.__file__))
    for beside in (os.path.join(packages, "bin"), os.path.dirname(sys.executable)):
        if own_root().has(os.path.join(beside, "py-spy")):
            return os.path.join(beside, "py-spy")
    if (installed := _find_installed()) is not None:
        return installed
    import shutil  # which loads four libraries for compressed files

    return shutil.which("py-spy")


def _find_installed() -> str | None:
    """The program in the list of files of the package py-spy: `pip install --user` puts it into no folder of this Python."""
    from importlib import metadata  # 20 ms

    try:
        files = metadata.files("py-spy") or []
    except metadata.PackageNotFoundError:
        return None
    programs = (os.path.normpath(str(file.locate())) for file in files if file.name == "py-spy")
    return next((program for program in programs if own_root().has(program)), None)


class Refused(Exception):
    """py-spy printed no stack. The text is one clause for the report."""


class NotPaused(Refused):
    """The process could not be paused: it is stopped, or another tracer is attached."""


class TooLate(Refused):
    """py-spy did not end in time."""


@functools.cache
def _is_open_to_all(program: str) -> bool:
    """Whether every user may run a program: it and the directories above it are open."""
    places = [program]
    while places[-1] != os.path.dirname(places[-1]):
        places.append(os.path.dirname(places[-1]))
    return all(own_root().stat(place).st_mode & 0o001 for place in places)


def dump(
    pid: int,
    seconds: float,
    at: float,
    *,
    native: bool,
    paused: bool,
    locals_: bool,
    root: str | None = None,
    owner: Rights | None = None,
) -> Stack:
    """All Python threads of `pid`, innermost frames first, within `seconds`. `at` becomes `Stack.at_seconds`.

    `paused` pauses the process during the read, which native frames need. `root` is the root directory of a process in a
    chroot: py-spy then runs in the chroot too, because otherwise it would prefix the paths of /proc/PID/maps twice. With
    `owner`, py-spy opens the files that the process has mapped with these rights, and not with those of root. Raises Refused.
    """
    program = executable()
    if program is None:
        raise Refused("py-spy is not installed: pip install py-spy")
    command = [program, "dump", "--pid", str(pid), "--json", "--full-filenames"]
    command += ["--native"] * native + ["--nonblocking"] * (not paused) + ["--locals"] * locals_
    inside: dict[str, Any] = {}
    file = -1
    try:
        if root is not None or (owner is not None and not _is_open_to_all(program)):
            file = own_root().open_regular(program)
            inside |= {"executable": f"/proc/self/fd/{file}", "inherited": (file,)}
        if root is not None:
            enter = root  # py-spy is linked statically: it needs no files of the other root directory
            inside["preexec_fn"] = lambda: _enter(enter)
        child = BoundedChild(command, memory_bytes=_MEMORY_BYTES[native], owner=owner, **inside)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"py-spy can't be started: {error}") from error
    finally:
        if file >= 0:
            os.close(file)
    own_tracers.add(child.pid)
    try:
        with child:
            _raise_priority(child.pid)
            finished = child.finish(seconds, _MAX_OUTPUT_BYTES)
    except TimeoutError:
        raise TooLate(f"py-spy did not end within {seconds:.1f} s") from None
    except OutputTooLong:
        raise Refused(f"py-spy printed more than {_MAX_OUTPUT_BYTES >> 20} MiB") from None
    finally:
        own_tracers.discard(child.pid)
    if finished.code != 0:
        raise _refusal(finished.complaint.decode("utf-8", "replace"), finished.code, owner)
    return parse(finished.out, at)


def parse(out: bytes, at: float) -> Stack:
    """The stack in py-spy's JSON, whose texts the process chooses. `at` becomes `Stack.at_seconds`. Raises Refused."""
    try:
        threads = untrusted.decode(out, list[_Thread], _MAX_OUTPUT_BYTES)
    except untrusted.UntrustedError as error:
        raise Refused(f"py-spy's output {error}") from error
    room = _Room()
    main_first = sorted(range(len(threads)), key=lambda number: threads[number].thread_name != "MainThread")
    try:
        read = {number: _thread(threads[number], room) for number in main_first if room.frames > 0}
    except untrusted.UntrustedError as error:
        raise Refused(f"py-spy's output {error}") from error
    isolation.charge_bytes(2 * (_MAX_CHARACTERS - room.characters))
    return Stack(at_seconds=at, threads=tuple(read[number] for number in sorted(read)))


def _raise_priority(pid: int) -> None:
    """Raise the priority of py-spy: while it waits for a CPU, the paused rank waits too. Only root may go below 0. Others try
    0, because `top` and `watch` run with a lower priority, which py-spy would inherit."""
    for niceness in (-20, 0):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, niceness)
            return


def _enter(root: str) -> None:
    os.chroot(root)
    os.chdir("/")


class _Room:
    """What may still be kept of one process. Its innermost frames come first."""

    def __init__(self) -> None:
        self.frames, self.characters = _MAX_FRAMES, _MAX_CHARACTERS

    def keep(self, frames: Iterable[msgspec.Raw]) -> Iterator[Frame]:
        """The frames for which there is room, without variables when those have taken their part. Raises UntrustedError."""
        for raw in frames:
            frame = _frame(
                untrusted.decode(raw, _Frame, _MAX_OUTPUT_BYTES), variables=self.characters > _MAX_CHARACTERS // 2
            )
            size = (
                len(frame.function) + len(frame.file) + sum(len(local.name) + len(local.text) for local in frame.locals)
            )
            self.frames, self.characters = self.frames - 1, self.characters - size
            if min(self.frames, self.characters) < 0:
                return
            yield frame


def _thread(thread: _Thread, room: _Room) -> PythonThread:
    return PythonThread(
        tid=thread.os_thread_id,
        name=thread.thread_name[:_MAX_NAME] if thread.thread_name is not None else None,
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=tuple(room.keep(thread.frames)),
    )


def _frame(frame: _Frame, *, variables: bool) -> Frame:
    # Native frames have no line, and the shared object instead of the source file, unless the library has debug symbols (NCCL's).
    native = frame.filename.endswith(_COMPILED) or not (frame.line or frame.filename.endswith(".py"))
    return Frame(
        function=frame.name[:_MAX_FUNCTION],
        file=frame.filename[:_MAX_FILE],
        line=frame.line,
        native=native,
        library=native or is_library(frame.filename),
        locals=tuple(_local(local) for local in (frame.locals or [])[:_MAX_LOCALS]) if variables else (),
    )


def _local(local: _Local) -> Local:
    text = local.repr or "?"
    return Local(
        name=local.name[:_MAX_NAME],
        text=text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "...",
        argument=local.arg,
        address=local.addr or None,
    )


def _refusal(complaint: str, code: int, owner: Rights | None) -> Refused:
    lowered = complaint.lower()
    if "failed to suspend process" in lowered:  # checked before permissions: another tracer causes EPERM, too
        return NotPaused("the process could not be paused")
    if owner is not None and "permission denied" in lowered:
        return Refused(f"its owner (uid {owner.uid}) may not read its Python, and py-spy has the owner's rights")
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return Refused(
            "permission denied (ptrace needs root, CAP_SYS_PTRACE, or the ranks' user with Yama's ptrace_scope 0)"
        )
    if "no such process" in lowered or "failed to open process" in lowered or "os error 3" in lowered:
        return Refused("the process has ended")
    if "memory allocation of" in lowered:
        return Refused("py-spy needed more memory than it may use")
    if "failed to find python version" in lowered or "no python" in lowered:
        return Refused("not a Python process")
    if not lowered and code == 255:  # what subprocess's child returns if its exec fails
        return Refused("py-spy can't be started" + (f" by uid {owner.uid}" if owner is not None else ""))
    last = [line.strip() for line in complaint.splitlines() if line.strip()]
    return Refused(f"py-spy failed: {(last[0] if last else f'exit code {code}')[:160]}")
