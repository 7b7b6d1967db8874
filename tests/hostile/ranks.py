"""Processes that look like ranks and belong to users of their own, for attacks on a hangdoc that runs as root."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.hostile.users import MALLORY

PYTHON = "/usr/bin/python3"
"""Which all users may run: that of the tests may lie in root's home."""
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
# The process becomes the user itself: until then it may enter what is root's alone.
_PROGRAM = """
import ctypes, mmap, os, signal, socket, stat, sys, threading, time
if {uid}:
    os.setgroups([])
    os.setresgid({uid}, {uid}, {uid})
    os.setresuid({uid}, {uid}, {uid})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as a process that was started as this user

def wait(file, line, function="wait"):
    '''Wait in a frame that claims to be at a line of a file.'''
    code = "\\n" * (line - 1) + "print('ready', flush=True) or sys.stdin.read()"
    exec(compile(code, file, "exec"), globals())

{code}
"""


class Seen(NamedTuple):
    """What a hangdoc command gave."""

    code: int
    text: str
    """Standard output and error, and the content of the bundle."""
    document: dict[str, Any]
    """The JSON; empty if there is none."""


def program(code: str, uid: int) -> str:
    """The source of a process of user `uid` that runs `code`, in which `wait(file, line)` is the last call."""
    return _PROGRAM.format(uid=uid, code=code)


@contextlib.contextmanager
def rank(
    code: str,
    number: int = 0,
    *,
    uid: int = MALLORY,
    port: int = 1,
    world_size: int = 2,
    environment: dict[str, str] | None = None,
    cwd: Path | str | bytes = "/",
    before: tuple[str, ...] = (),
) -> Iterator[int]:
    """The pid of a process with the environment of a rank that runs `code` as user `uid`. `before` are words in front of the
    command, such as those of unshare(1). It is killed at the end."""
    variables = {
        "RANK": str(number), "WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    child = subprocess.Popen(
        [*before, PYTHON, "-I", "-c", program(code, uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=variables | (environment or {}),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield _innermost(child.pid)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def _innermost(pid: int) -> int:
    """The process that unshare(1) has started, or `pid` itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _innermost(int(children[0])) if children else pid


def run_hangdoc(*arguments: str, folder: Path, seconds: float = 200, **more: Any) -> Seen:
    """`hangdoc diagnose` with a bundle in `folder`."""
    bundle = folder / "seen.hangdoc"
    if (tree := os.environ.get("HANGDOC_TREE")) is not None:  # another checkout, to see an attack succeed on it
        more["env"] = {**os.environ, **more.get("env", {}), "PYTHONPATH": tree}
    done = subprocess.run(
        [HANGDOC, "diagnose", "--json", "--save", str(bundle), "--window", "0.3", *arguments],
        capture_output=True, timeout=seconds, check=False, **more,
    )  # fmt: skip
    inside = gzip.decompress(bundle.read_bytes()).decode() if bundle.exists() else ""
    shown = done.stdout.decode("utf-8", "replace")
    document = json.loads(shown) if shown.startswith("{") else {}
    return Seen(done.returncode, shown + done.stderr.decode("utf-8", "replace") + inside, document)
