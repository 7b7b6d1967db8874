"""Ctrl-C and SIGTERM at any time: the documented exit code, at most one sentence, no process left, and no rank left paused.

The delays count from hangdoc's first line. Before that, Python starts, and its own traceback cannot be prevented.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_RANK = "import sys; print('ready', flush=True); sys.stdin.read()"
_LOADED = """
import sys
from hangdoc.cli import interrupts
interrupts.end_at_once()
sys.stderr.write("loaded\\n")
from hangdoc.cli.main import main
main()
"""
_DELAYS = (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.9, 1.1, 1.3)


@pytest.fixture(scope="module")
def rank(can_attach: None) -> Iterator[int]:
    torch = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    child = subprocess.Popen(
        [sys.executable, "-c", _RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **torch}
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    yield child.pid
    child.kill()
    child.communicate()


def start(words: str, rank: int, folder: Path) -> "subprocess.Popen[str]":
    """A command that has executed its first line."""
    command = [word.replace("RANK", str(rank)) for word in shlex.split(words)]
    child = subprocess.Popen(
        [sys.executable, "-c", _LOADED, *command], cwd=folder, start_new_session=True, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    assert child.stderr.readline() == "loaded\n"
    return child


def is_observed(rank: int) -> bool:
    """Whether the rank is traced or stopped, or a process names it in its arguments."""
    lines = Path(f"/proc/{rank}/status").read_text().splitlines()
    status = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.strip()}
    if status["State"] != "S" or status["TracerPid"] != "0":
        return True
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if str(rank).encode() in words:  # empty for a process that has ended
            return True
    return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize(
    "words",
    [
        "diagnose --pid RANK --native always",
        "snapshot -o x.hangdoc --pid RANK",
        "watch --keep --interval 1 --pid RANK",
        "doctor",
        "rules",
        "mcp",
        "diagnose --hosts a,b --via 'sleep 1000 {host}'",
    ],
)
def test_a_command_ends_at_any_time(words: str, number: signal.Signals, rank: int, tmp_path: Path) -> None:
    quick = "RANK" not in words
    for delay in _DELAYS[: 14 if quick else None]:
        child = start(words, rank, tmp_path)
        try:
            time.sleep(delay)
            os.killpg(child.pid, number)
            sent = time.monotonic()
            _, said = child.communicate(timeout=60)
            over = child.returncode in (0, 4)  # it had ended before
            assert child.returncode == 128 + number or over, (delay, said)
            assert time.monotonic() - sent < 30  # not the 1,000 s of an ssh that does not answer
            assert "Traceback" not in said and "ignored" not in said, (delay, said)
            assert (
                len([line for line in said.splitlines() if line and "watching" not in line and ":" not in line[:3]])
                <= 1
            )
            until = time.monotonic() + 30
            while is_observed(rank):
                assert time.monotonic() < until, delay
                time.sleep(0.01)
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize(
    ("raised", "code"), [("SystemExit(143)", 143), ("KeyboardInterrupt", 130), ("ValueError('bug')", 1)]
)
def test_a_signal_while_a_class_is_created(raised: str, code: int) -> None:
    """A module that is imported then makes classes, and before Python 3.12, each exception in there becomes another one."""
    program = (
        "from hangdoc.cli import main\n"
        "class Interrupted:\n"
        f"    def __set_name__(self, owner, name): raise {raised}\n"
        "def command():\n"
        "    class Made: at = Interrupted()\n"
        "main.run_to_end(command)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ("Traceback" in ended.stderr) is (code == 1)


def test_the_second_ctrl_c_does_not_wait_for_the_cleanup() -> None:
    program = (
        "import os, time\n"
        "from hangdoc.cli import interrupts, main\n"
        "def command():\n"
        "    interrupts.end_with_cleanup()\n"
        "    try:\n"
        "        os.write(1, b'ready\\n')\n"
        "        time.sleep(1000)\n"
        "    finally:\n"
        "        os.write(1, b'cleanup\\n')\n"
        "        time.sleep(1000)\n"
        "main.run_to_end(command)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "cleanup\n"
        for _ in range(5):  # what a closing terminal sends
            child.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert child.poll() is None
        until = time.monotonic() + 60
        while child.poll() is None:
            assert time.monotonic() < until
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert child.returncode == 130
        assert child.communicate()[1] == ""
    finally:
        child.kill()
        child.wait()


def test_a_ctrl_c_that_python_would_drop_ends_the_command() -> None:
    """An exception that is raised in a destructor is printed and forgotten."""
    program = (
        "import signal, time\n"
        "from hangdoc.cli import interrupts, main\n"
        "class Dropped:\n"
        "    def __del__(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        time.sleep(0)\n"
        "def command():\n"
        "    interrupts.end_with_cleanup()\n"
        "    Dropped()\n"
        "    return 0\n"
        "main.run_to_end(command)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (130, "")
