"""A run of the tests that is ended by a signal, or loses a worker, leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_RANKS = """
import subprocess, sys
# As torchrun does: a session of its own for each, and a child of a child.
inner = "import subprocess, sys; subprocess.Popen(['sleep', '1000'], start_new_session=True).wait()"
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True).wait()
"""
_TEST = """
import os, subprocess, sys, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(2))
def test_starts_ranks(number):
    subprocess.Popen([sys.executable, "-c", Path("ranks.py").read_text()], start_new_session=True)
    Path(f"started-{number}").touch()
    while not Path("crash").exists() or number:
        time.sleep(0.02)
    os.kill(os.getpid(), 9)
"""


def _running(folder: Path) -> list[int]:
    """The processes that have started in this folder, by their initial environment. None of those that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"FOLDER={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _sleeping(folder: Path) -> list[int]:
    return [pid for pid in _running(folder) if _words(pid)[:1] == [b"sleep"]]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _wait_until(condition: object, seconds: float = 200) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "ranks.py").write_text(_RANKS)
    (tmp_path / "test_ranks.py").write_text(_TEST)
    (tmp_path / "Makefile").write_text(
        f"include {ROOT}/Makefile\nranks:\n\t$(PYTEST_ALONE) -n 2 -q -p tests.conftest test_ranks.py; exit 7\n"
    )
    yield tmp_path
    for pid in _running(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _start(folder: Path, *command: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "FOLDER": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT}/tui:{ROOT}/trainer"}
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wanted = 1 if "0" in command else 2
    _wait_until(lambda: len(_sleeping(folder)) >= wanted)
    return child


_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "test_ranks.py")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize(
    "command",
    [(*_PYTEST, "-n", "0"), (*_PYTEST, "-n", "2"), ("make", f"BIN={ROOT}/.venv/bin", "ranks")],
    ids=["0", "2", "make"],
)
def test_a_signal_ends_all(command: tuple[str, ...], number: signal.Signals, folder: Path) -> None:
    child = _start(folder, *command)
    if number == signal.SIGHUP:  # of a terminal that closes, which sends it to the whole group
        os.killpg(child.pid, number)
    else:
        child.send_signal(number)
    child.wait(100)
    _wait_until(lambda: not _running(folder))


def test_ctrl_c_ends_all(folder: Path) -> None:
    child = _start(folder, *_PYTEST, "-n", "2")
    os.killpg(child.pid, signal.SIGINT)
    child.wait(100)
    _wait_until(lambda: not _running(folder))


def test_a_worker_that_crashes_leaves_nothing_while_the_others_go_on(folder: Path) -> None:
    child = _start(folder, *_PYTEST, "-n", "2", "--max-worker-restart", "0")
    before = set(_sleeping(folder))
    (folder / "crash").touch()
    _wait_until(lambda: len(before & set(_sleeping(folder))) == 1)
    assert child.poll() is None
    child.kill()
    child.wait(100)
    _wait_until(lambda: not _running(folder))
