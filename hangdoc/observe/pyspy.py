"""py-spy: the Python stacks of a running process, read from outside (https://github.com/benfred/py-spy).

py-spy stops a process for the milliseconds it reads (PTRACE_SEIZE: if py-spy dies, the kernel lets the process go).
Whatever is already stopped, frozen or held is read with `--nonblocking`, which stops nothing.
"""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from hangdoc.observe.deadline import Deadline
from hangdoc.snapshot import Frame, Local, PythonThread, Stack, Unavailable

BOUND_SECONDS = 6.0
"""For one dump; a dump takes 20 ms, with native frames up to 2 s on a busy machine."""
_MAX_TEXT = 240
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
    frames: list[_Frame] = []


_DECODER = msgspec.json.Decoder(list[_Thread])


def executable() -> str | None:
    """py-spy beside this Python, else on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def dump(
    pid: int, deadline: Deadline, *, native: bool = False, held: bool = False, locals_: bool = True
) -> Stack | Unavailable:
    """All Python threads of `pid`, innermost frames first; never raises.

    `held` says that the process is stopped, frozen or traced: it is then read without being paused.
    """
    program = executable()
    if program is None:
        return Unavailable(reason="py-spy is not installed: pip install py-spy")
    if native and held:
        return Unavailable(reason="native frames need a process that may be paused")
    command = [program, "dump", "--pid", str(pid), "--json", "--full-filenames"]
    command += ["--native"] * native + ["--nonblocking"] * held + ["--locals"] * locals_
    seconds = deadline.remaining(BOUND_SECONDS)
    if seconds < 0.05:
        return Unavailable(reason="no time left")
    at = deadline.elapsed()
    # A session of its own: a Ctrl-C at the terminal reaches us, not a py-spy that is just holding a rank.
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Unavailable(reason=f"py-spy can't be started: {error.strerror}")
    try:
        out, complaint = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Unavailable(reason=f"py-spy did not answer within {seconds:.0f} s")
    finally:
        if child.poll() is None:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=1)
    if child.returncode != 0:
        return Unavailable(reason=_explain(complaint.decode("utf-8", "replace"), child.returncode))
    try:
        threads = _DECODER.decode(out)
    except msgspec.DecodeError as error:
        return Unavailable(reason=f"py-spy printed what can't be read: {error}")
    return Stack(at_seconds=at, threads=tuple(_thread(thread) for thread in threads))


def _thread(thread: _Thread) -> PythonThread:
    return PythonThread(
        tid=thread.os_thread_id,
        name=thread.thread_name,
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=tuple(_frame(frame) for frame in thread.frames),
    )


def _frame(frame: _Frame) -> Frame:
    # py-spy gives native frames no line and names the shared object where others name the source file.
    native = not frame.line and (frame.filename.endswith(".py") is False)
    return Frame(
        function=frame.name,
        file=frame.filename,
        line=frame.line,
        native=native,
        library=native or is_library(frame.filename),
        locals=tuple(_local(local) for local in (frame.locals or [])[:_MAX_LOCALS]),
    )


def _local(local: _Local) -> Local:
    text = local.repr or "?"
    return Local(
        name=local.name,
        text=text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "...",
        argument=local.arg,
        address=local.addr or None,
    )


def is_library(file: str) -> bool:
    """True for the standard library, site-packages, hangdoc's own part in a trainer, and what has no file: not the user's
    own code."""
    if "/site-packages/" in file or "/dist-packages/" in file or "/hangdoc/watchdog/" in file or file.startswith("<"):
        return True
    _, python, tail = file.rpartition("/lib/python3.")
    return bool(python) and tail.partition("/")[0].rstrip("t").isdigit()


def _explain(complaint: str, code: int) -> str:
    lowered = complaint.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return "permission denied (needs ptrace: root, CAP_SYS_PTRACE, or the ranks' user with Yama's ptrace_scope 0)"
    if "no such process" in lowered or "failed to open process" in lowered or "os error 3" in lowered:
        return "the process has ended"
    if "failed to find python version" in lowered or "no python" in lowered:
        return "not a Python process"
    last = [line.strip() for line in complaint.splitlines() if line.strip()]
    return f"py-spy failed: {(last[0] if last else f'exit code {code}')[:160]}"
