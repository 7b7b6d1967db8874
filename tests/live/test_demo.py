"""`hangdoc demo`: what it prints, and that no end of it leaves a process or a file behind."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))


class Held:
    """`hangdoc demo --hold NAME` at a terminal of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self._mark = f"HANGDOC_TEST={uuid.uuid4().hex}"
        self._folder = folder
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:  # the child may only exec
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup, below which the tests may run, ignores
            variable, value = self._mark.split("=")
            os.execve(  # noqa: S606
                HANGDOC, [HANGDOC, "demo", name, "--hold"], {**os.environ, variable: value, "TMPDIR": str(folder)}
            )

    def text(self) -> str:
        """What it printed, up to its last line."""
        said = b""
        while b"Ctrl-C ends the run" not in said:
            said += os.read(self.terminal, 4096)  # raises OSError where the command ended
        return said.decode()

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self.terminal)
        self.terminal = -1

    def code(self) -> int:
        """Its exit code, once it has ended."""
        until = time.monotonic() + 100
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        raise AssertionError("it does not end")

    def left(self) -> list[str]:
        """Processes and files of it that are still there."""
        files = [path.name for path in self._folder.iterdir()]
        return files + [str(pid) for pid in self._processes()]

    def _processes(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue

    def end(self) -> None:
        """Whatever happened, nothing goes on."""
        for pid in self._processes():
            os.kill(pid, signal.SIGKILL)
        if self.terminal >= 0:
            os.close(self.terminal)


@pytest.fixture
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    one = Held(request.param, tmp_path)
    yield one
    one.end()


@pytest.mark.parametrize("held", ["rank-stops"], indirect=True)
def test_a_held_run_can_be_looked_at_with_what_was_printed(held: Held) -> None:
    lines = held.text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("  ") and "--pid" in line]
    assert [Path(words[0]).name for words in commands] == ["hangdoc", "hangdoc", "py-spy", "py-spy"]
    assert [words[1] for words in commands] == ["diagnose", "top", "dump", "dump"]
    done = [
        subprocess.run(words, capture_output=True, timeout=200, check=False) for words in commands if "top" not in words
    ]
    assert [one.returncode for one in done] == [1, 0, 0], done
    assert b"HD302" in done[0].stdout
    pids = {line.split()[-1] for line in lines if line.startswith("  rank")}
    assert pids == {words[3] for words in commands[2:]}
    os.write(held.terminal, b"\x03\x03")  # as people press it
    assert held.code() == 0
    assert not held.left()


@pytest.mark.parametrize(
    ("held", "how"),
    [("rank-dies", "hang up"), ("waits-for-input", "both"), ("healthy", "early")],
    indirect=["held"],
)
def test_no_end_of_a_held_run_leaves_anything(held: Held, how: str) -> None:
    if how == "early":
        until = time.monotonic() + 100
        while len(held.left()) < 3:  # its folder, the command itself, and what it started
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(held.pid, signal.SIGTERM)
    else:
        held.text()
    if how == "hang up":
        held.hang_up()
    elif how == "both":
        os.kill(held.pid, signal.SIGHUP)
        os.kill(held.pid, signal.SIGTERM)
    expected = {"hang up": {128 + signal.SIGHUP}, "early": {128 + signal.SIGTERM}}
    assert held.code() in expected.get(how, {128 + signal.SIGHUP, 128 + signal.SIGTERM})
    assert not held.left()
