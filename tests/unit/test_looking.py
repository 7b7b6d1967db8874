"""What a look says of a process that is no rank."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc.cli.group import run
from hangdoc.commands.errors import NO_RANK
from hangdoc.commands.looking import describe_no_rank
from hangdoc.observe.find.discover import find_helper
from hangdoc.procfs import ProcFS

_WAITS = "import ctypes, sys; {}; print('ready', flush=True); sys.stdin.read()"


def _map_as_torch(folder: Path) -> str:
    """Python that maps a file under the name of torch's library."""
    library = folder / "torch/lib/libtorch_python.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0" * 4096)
    return f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"


@pytest.mark.parametrize(
    ("command", "says", "leave_out"),
    [
        ("torch", "has loaded torch, but hangdoc sees no process group and no variables of a launcher in it", False),
        ("python", "has not loaded torch, so it is no rank of torch.distributed yet", True),
        ("cat", "is neither a rank of torch.distributed nor the launcher of one", True),
    ],
)
def test_a_process_that_is_no_rank_yet(
    command: str, says: str, leave_out: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any file that is mapped under the name of torch's library stands for it: an import of torch takes long."""
    maps = _map_as_torch(tmp_path)
    words = (
        ["cat"] if command == "cat" else [sys.executable, "-c", _WAITS.format(maps if command == "torch" else "pass")]
    )
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin and process.stdout
            if command == "cat":
                process.stdin.write(b"ready\n")
                process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            assert run(["diagnose", "--pid", str(process.pid), "--window", "0.1"]) == NO_RANK
        finally:
            process.kill()
    said = " ".join(capsys.readouterr().err.split())
    assert f"pid {process.pid} {says}" in said
    assert ("--pid" in said) == leave_out


@pytest.mark.parametrize(
    ("child", "says"),
    [
        ("false", "is dead: exited with code 1. Read its log."),
        ("true", "It may not have called init_process_group yet: look again when it has."),
    ],
)
def test_a_child_that_failed_and_is_not_collected(child: str, says: str, tmp_path: Path) -> None:
    """A launcher waits for its ranks in order, and these wait for the one that is dead."""
    starts = f"import os; child = os.posix_spawn('/bin/{child}', ['{child}'], {{}})"
    ends = "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
    words = [sys.executable, "-c", _WAITS.format("; ".join((_map_as_torch(tmp_path), starts, ends)))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            text = describe_no_rank((process.pid,))
        finally:
            process.kill()
    assert says in text
    assert (f"of pid {process.pid} is dead" in text) is (child == "false")


_OF_RANK_2 = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
_FORKS = """
import os, sys, threading, time
def call_itself(task, name):
    with open(f"/proc/self/task/{task}/comm", "w") as comm:
        comm.write(name)
def serve():
    call_itself(threading.get_native_id(), "pt_gloo_runloop")
    named.set()
    time.sleep(600)
named = threading.Event()
threading.Thread(target=serve, daemon=True).start()
named.wait()
child = os.fork()
if child == 0:
    name, backend = sys.argv[1:]
    if name:
        call_itself(os.getpid(), name)
    if backend:
        call_itself(threading.get_native_id(), backend)
    print(os.getpid(), flush=True)
    time.sleep(600)
sys.stdin.read()
os.kill(child, 9)
"""


@pytest.mark.parametrize(
    ("name", "backend", "variables", "what"),
    [
        ("pt_data_worker", "", {}, "a dataloader worker"),
        ("", "", _OF_RANK_2, "a process that rank 2 has started"),
        ("", "", {}, None),
        ("", "pt_gloo", {}, None),
    ],
)
def test_a_helper_that_a_rank_forked_is_not_taken_for_it(
    name: str, backend: str, variables: dict[str, str], what: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thread with the name of one of a backend stands for a process group. What a process that is no known rank forked may be a
    rank, also before it has a group of its own."""
    words = [sys.executable, "-c", _FORKS, name, backend]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=os.environ | variables) as process:
        assert process.stdin and process.stdout
        helper = int(process.stdout.readline())
        try:
            assert run(["diagnose", "--pid", str(helper), "--window", "0.1"]) == NO_RANK
        finally:
            process.stdin.close()
            process.wait()
    said = " ".join(capsys.readouterr().err.split())
    assert (f"pid {helper} is no rank: it is {what}. Name its rank instead, pid {process.pid}." in said) is bool(what)


@pytest.mark.parametrize(("rank", "is_helper"), [("2", True), ("3", False)])
def test_a_rank_that_a_rank_started_is_no_helper(rank: str, is_helper: bool) -> None:
    """One with variables of its own is a rank, also before it has a process group."""
    program = _FORKS.replace(
        "os.fork()", "os.posix_spawn(sys.executable, sys.argv[1:], os.environ | {'RANK': sys.argv[-1]})"
    )
    words = [sys.executable, "-c", program, sys.executable, "-c", _WAITS.format("import os; print(os.getpid())"), rank]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=os.environ | _OF_RANK_2) as process:
        assert process.stdin and process.stdout
        started = int(process.stdout.readline())
        try:
            assert find_helper(ProcFS(), started) == (
                ("a process that rank 2 has started", process.pid) if is_helper else None
            )
            assert find_helper(ProcFS(), process.pid) is None
        finally:
            process.stdin.close()
            process.wait()
