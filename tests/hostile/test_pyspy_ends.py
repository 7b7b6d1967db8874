"""py-spy ends with hangdoc and stays within its bounds, so that no rank stays paused and no host runs out of memory."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.bounded_child import BoundedChild, OutputTooLong
from hangdoc.observe.kernel import process_states
from hangdoc.observe.stacks import pyspy

MIB = 1 << 20
_RANK = "import sys; print('ready', flush=True); sys.stdin.read()"
_OBSERVER = """
import sys
from hangdoc.observe.stacks import pyspy
while True:
    try:
        pyspy.dump(int(sys.argv[1]), 60, 0.0, native=True, paused=True, locals_=True)
    except pyspy.Refused:
        pass
"""


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def _is_running(pid: int) -> bool:
    try:
        return _status(pid, "State")[0] not in "ZX"
    except OSError:
        return False


def _wait_until(condition: object, seconds: float = 100) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.0005)


@pytest.fixture
def rank(can_attach: None) -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", _RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    yield child.pid
    child.kill()
    child.communicate()


def _stop_in_the_middle_of_a_dump(rank: int) -> int:
    """Stop a py-spy that has paused the rank, as if its dump took forever. Returns its pid."""
    until = time.monotonic() + 200
    while time.monotonic() < until:
        tracer = int(_status(rank, "TracerPid"))
        if not tracer:
            continue
        try:
            os.kill(tracer, signal.SIGSTOP)
            _wait_until(lambda: _status(tracer, "State")[0] in "TZX")  # noqa: B023
            if int(_status(rank, "TracerPid")) == tracer and _status(tracer, "State")[0] == "T":
                return tracer
            os.kill(tracer, signal.SIGCONT)
        except (OSError, ProcessLookupError):
            continue  # that dump has ended
    raise AssertionError("no dump was caught")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV], ids=lambda number: number.name)
def test_a_rank_goes_on_when_hangdoc_is_killed_in_a_dump(rank: int, number: signal.Signals) -> None:
    observer = subprocess.Popen([sys.executable, "-c", _OBSERVER, str(rank)])
    stopped = None
    try:
        stopped = _stop_in_the_middle_of_a_dump(rank)
        observer.send_signal(number)
        observer.wait(100)
        _wait_until(lambda: _status(rank, "State")[0] == "S" and _status(rank, "TracerPid") == "0")
        assert not _is_running(stopped)
    finally:
        observer.kill()
        observer.wait()
        if stopped is not None and _is_running(stopped):
            os.kill(stopped, signal.SIGKILL)


def test_a_dump_outlives_the_thread_that_began_it() -> None:
    children: list[BoundedChild] = []
    thread = threading.Thread(target=lambda: children.append(BoundedChild(["sleep", "60"], memory_bytes=64 * MIB)))
    thread.start()
    thread.join()
    (child,) = children
    with child:
        with pytest.raises(TimeoutError):
            child.finish(0.3, MIB)
        assert _is_running(child.pid)
    assert not _is_running(child.pid)


@pytest.mark.parametrize("stream", ["", " >&2"], ids=["stdout", "stderr"])
def test_endless_output_ends_it(stream: str) -> None:
    with BoundedChild(["sh", "-c", f"exec yes{stream}"], memory_bytes=64 * MIB) as child:
        expected = TimeoutError if stream else OutputTooLong
        with pytest.raises(expected):
            child.finish(0.5 if stream else 20, MIB)
    assert not _is_running(child.pid)


def test_a_child_that_needs_too_much_memory_fails() -> None:
    program = "import sys; x = bytearray(256 << 20); print('allocated')"
    with BoundedChild([sys.executable, "-c", program], memory_bytes=128 * MIB) as child:
        code, out, complaint = child.finish(20, MIB)
    assert (code, out) == (1, b"")
    assert b"MemoryError" in complaint


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("yes", "py-spy printed more than 16 MiB"),
        (
            "echo 'memory allocation of 4096 bytes failed' >&2; kill -ABRT $$",
            "py-spy needed more memory than it may use",
        ),
        ("exec sleep 60", "py-spy did not end within 1.0 s"),
        ("exec 1>&- 2>&- sleep 60", "py-spy did not end within 1.0 s"),
        ("echo '[[['", "py-spy's output is damaged"),
        ("head -c 100000000 /dev/zero >&2; exit 3", "py-spy failed"),
    ],
)
def test_what_py_spy_does_wrong_is_one_clause(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "executable", lambda: str(program))
    with pytest.raises(pyspy.Refused, match=reason) as refused:
        pyspy.dump(os.getpid(), 1.0 if "sleep" in script else 10.0, 0.0, native=False, paused=False, locals_=False)
    assert len(str(refused.value)) < 250
    assert not process_states.own_tracers
