"""`hangdoc run`: the command runs as if hangdoc were not there, and a hang is reported."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hangdoc_trainer.offspring import Offspring, free_port

pytestmark = [pytest.mark.live]
PROGRAMS = Path(__file__).parent / "programs"
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
_SECONDS = 280
"""For a start of torch, and for looks at it, on a busy machine. Only a test that fails takes so long."""
_TRAP = """
trap 'echo got TERM' TERM; trap 'echo got INT; exit 5' INT; trap 'echo got USR1' USR1
echo ready
while :; do sleep 0.05; done
"""


def run(*command: str, options: tuple[str, ...] = (), given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HANGDOC, "run", *options, "--", *command], input=given, capture_output=True, text=True,
                          check=False, timeout=_SECONDS, start_new_session=True)  # fmt: skip


def test_streams_and_exit_codes_are_the_commands(tmp_path: Path) -> None:
    done = run("sh", "-c", "cat; echo err >&2; exit 3", given="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in\n", "err\n")
    assert run("sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV  # hangdoc dies of the same signal
    assert run("sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    missing, folder = run("no-such-command"), run(str(tmp_path))
    assert (missing.returncode, folder.returncode) == (127, 126)
    assert missing.stderr == "hangdoc: no-such-command: no such command in PATH.\n"
    assert missing.stdout == folder.stdout == ""


def test_the_command_inherits_descriptors_niceness_and_signals() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    told = ["bash", "-c", f"nice; grep SigBlk /proc/self/status; echo through >&{writing}"]
    plain = subprocess.run(told, pass_fds=[writing], capture_output=True, text=True, check=False)
    under = subprocess.run(
        [HANGDOC, "run", "--", *told], pass_fds=[writing], capture_output=True, text=True, check=False
    )
    os.close(writing)
    assert under.stdout == plain.stdout != ""
    with open(reading) as pipe:
        assert pipe.read() == "through\nthrough\n"


def test_where_ptrace_is_refused_it_says_so_and_runs_the_command() -> None:
    told = [
        sys.executable,
        str(PROGRAMS / "no_ptrace.py"),
        HANGDOC,
        "run",
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 4",
    ]
    child = subprocess.Popen(told, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "ready\n"
    assert "it may miss hangs" in (said := child.stderr.readline())
    assert "ptrace" in said
    child.communicate("go\n", timeout=_SECONDS)
    assert child.returncode == 4


class Started:
    """A command under `hangdoc run`, in a session of its own: there the kernel compares the observer's niceness with the command
    alone (sched(7), autogroup). Beside the processes of all other tests the observer would get no processor for minutes. It
    works in a directory of its own, because what is at work in the same directory may make the file that a rank waits for."""

    def __init__(self, *command: str, options: tuple[str, ...] = (), around: Sequence[str] = ()) -> None:
        self._offspring, self._directory = Offspring(), tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [*around, HANGDOC, "run", *options, "--", *command], env={**os.environ, **self._offspring.mark}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            cwd=self._directory.name,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.out = self.process.stdout

    def children(self) -> list[int]:
        """The command and the observer, in this order."""
        pid = self.process.pid
        wait_until(lambda: len(_children(pid)) >= 2)
        return sorted(_children(pid))

    def complaints_until(self, text: str) -> str:
        """What it has written to stderr until this text, which must come: the test's own timeout bounds the wait."""
        assert self.process.stderr is not None
        read = ""
        while text not in read:
            line = self.process.stderr.readline()
            assert line, read
            read += line
        return read

    def left(self) -> list[int]:
        return [pid for pid, _ in self._offspring.processes()]

    def end(self) -> None:
        self._offspring.end()
        self.process.communicate()
        self._directory.cleanup()


@contextlib.contextmanager
def started(*command: str, options: tuple[str, ...] = ()) -> Iterator[Started]:
    one = Started(*command, options=options)
    try:
        yield one
    finally:
        one.end()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stopped(pid: int) -> bool:
    """Whether it, or a child of it, is stopped."""
    return any(_status(one, "State") == "T" for one in (pid, *_children(pid)))


def wait_until(condition: object, seconds: float = _SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_signal_arrives_once_whether_sent_to_hangdoc_or_to_the_group() -> None:
    with started("sh", "-c", _TRAP) as one:
        assert one.out.readline() == "ready\n"
        _, observer = one.children()
        handled = 1 << (signal.SIGUSR1 - 1)  # the observer is there when it handles what it only reports
        wait_until(lambda: int(_status(observer, "SigCgt"), 16) & handled)
        one.process.send_signal(signal.SIGUSR1)
        assert one.out.readline() == "got USR1\n"
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.out.readline() == "got TERM\n"
        time.sleep(0.5)  # a second one would come now
        one.process.send_signal(signal.SIGUSR1)
        assert one.out.readline() == "got USR1\n"
        one.process.send_signal(signal.SIGINT)
        assert one.out.readline() == "got INT\n"
        assert one.process.wait(_SECONDS) == 5


def test_a_signal_to_the_group_arrives_once_where_the_observer_gets_no_processor() -> None:
    """A stopped process takes no signal, as one at nice 19 on a busy machine takes none for seconds."""
    with started("sh", "-c", _TRAP) as one:
        assert one.out.readline() == "ready\n"
        _, observer = one.children()
        handled = 1 << (signal.SIGUSR1 - 1)
        wait_until(lambda: int(_status(observer, "SigCgt"), 16) & handled)
        os.kill(observer, signal.SIGSTOP)
        wait_until(lambda: _status(observer, "State") == "T")
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.out.readline() == "got TERM\n"
        one.process.send_signal(signal.SIGUSR1)
        assert one.out.readline() == "got USR1\n"  # and not a second TERM before it
        os.kill(observer, signal.SIGCONT)
        wait_until(lambda: int(_status(observer, "ShdPnd"), 16) == 0)
        time.sleep(1.1)  # a signal within a second of the one to the group counts as a copy of it
        one.process.send_signal(signal.SIGTERM)
        assert one.out.readline() == "got TERM\n"  # what the observer reports late takes no later signal away
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(_SECONDS) == 5


def test_the_command_needs_neither_hangdoc_nor_its_observer() -> None:
    with started("sh", "-c", "echo ready; read line; echo through; exit 7") as one:
        assert one.out.readline() == "ready\n"
        _, observer = one.children()
        os.kill(observer, signal.SIGKILL)
        said, complained = one.process.communicate("go\n", timeout=_SECONDS)
        assert (one.process.returncode, said) == (7, "through\n")
        assert complained == "hangdoc: the observer exited with code -9. The command continues without observation.\n"
    with started("sh", "-c", "echo ready; read line; echo through") as one:
        assert one.out.readline() == "ready\n"
        _, observer = one.children()
        one.process.kill()
        one.process.wait(_SECONDS)
        assert one.process.communicate("go\n", timeout=_SECONDS)[0] == "through\n"
        wait_until(lambda: not one.left())  # the observer ends with hangdoc, the command with its input


def _status(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(field + ":"))


def test_a_terminal_is_the_commands() -> None:
    """Input, Ctrl-Z, fg and Ctrl-C, from an interactive shell."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "prompt "
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])  # noqa: S606
    said = b""

    def expect(text: bytes) -> None:
        nonlocal said
        until = time.monotonic() + _SECONDS
        while text not in said:
            assert time.monotonic() < until, said
            said += os.read(terminal, 4096)
        said = said.partition(text)[2]

    def type_(text: bytes) -> None:
        os.write(terminal, text)

    try:
        expect(b"prompt ")
        script = "import sys, time; print('st'+'arted', input(), flush=True); time.sleep(600)"
        type_(f'{HANGDOC} run -- {sys.executable} -c "{script}"; echo code=$?\r'.encode())
        expect(b"hangdoc: watching")
        type_(b"hello\r")
        expect(b"started hello")
        type_(b"\x1a")
        expect(b"Stopped")
        expect(b"prompt ")
        type_(b"fg\r")
        expect(b"hangdoc run")
        wait_until(lambda: os.tcgetpgrp(terminal) != pid and not _stopped(os.tcgetpgrp(terminal)))
        type_(b"\x03")
        expect(b"KeyboardInterrupt")
        expect(b"prompt ")
        type_(b"echo code=$?\r")
        expect(b"code=130")
    finally:
        os.close(terminal)  # hangs up
        os.waitpid(pid, 0)


def torchrun(*arguments: str, **options: object) -> list[str]:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "torch.distributed.run", *words, str(PROGRAMS / "stalls.py"), *arguments]


def quick(folder: Path, *more: str) -> tuple[str, ...]:
    return ("--interval", "1", "--patience", "1", "-o", str(folder), *more)


def hangdoc_said(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("hangdoc: ")]


@pytest.mark.usefixtures("can_attach")
def test_a_healthy_run_hears_nothing(tmp_path: Path) -> None:
    done = run(*torchrun(nproc_per_node=2, master_port=free_port()), options=quick(tmp_path))
    assert (done.returncode, done.stdout) == (0, "under way\nunder way\ndone\ndone\n")
    assert hangdoc_said(done.stderr) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("can_attach")
def test_a_hang_is_reported_once_and_so_is_its_end(tmp_path: Path) -> None:
    go = tmp_path / "go"
    ranks = torchrun(str(go), nproc_per_node=2, master_port=free_port())
    with started(*ranks, options=quick(tmp_path, "--on-hang", f"cp /dev/stdin {tmp_path}/told")) as one:
        wait_until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
        go.touch()
        complained = one.complaints_until("makes progress again")
        go.unlink()
        out, rest = one.process.communicate(timeout=_SECONDS)
    assert (one.process.returncode, out.count("done")) == (0, 2)
    said = "\n".join(hangdoc_said(complained + rest))
    assert said.count("HUNG for") == 1
    assert "HD202 missing-rank" in said
    assert said.count("makes progress again") == 1
    (bundle,), (page,) = tmp_path.glob("*.hangdoc"), tmp_path.glob("*.html")
    again = subprocess.run(
        [HANGDOC, "diagnose", "--patience", "1", bundle], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "culprit   rank 1" in again.stdout
    shown = page.read_text()
    for section in ("HD202", "<h2>Who waits for whom</h2>", "<h2>Timeline</h2>", "<h2>Stacks</h2>"):
        assert section in shown
    assert "HD202" in (tmp_path / "told").read_text()


@pytest.mark.usefixtures("can_attach")
def test_stop_ends_everything_with_86(tmp_path: Path) -> None:
    ranks = torchrun("/never", nproc_per_node=2, master_port=free_port())
    with started(*ranks, options=quick(tmp_path, "--on-hang", "stop", "--grace", "3")) as one:
        out, complained = one.process.communicate(timeout=_SECONDS)
        assert (one.process.returncode, out.count("done")) == (86, 0), complained
        assert one.left() == []
    assert "HD202" in complained
    (told,) = [line for line in complained.splitlines() if line.startswith("hangdoc: --on-hang stop: ")]
    assert re.fullmatch(
        r".*because of this hang, hangdoc ends \S+ \(pid \d+\) and the 2 other processes that it started, and exits with code 86",
        told,
    )
    assert "hangdoc:   to do     " in complained
    (report,) = tmp_path.glob("*.txt")
    last = complained.splitlines()[-1]  # after the launcher's traceback
    assert re.fullmatch(r"hangdoc: stopped a hung run \(exit code 86\): .*rank 1.*stalls\.py:\d+.*; report .*", last), (
        last
    )
    assert last.endswith(f"; report {report}")
    assert report.read_text().endswith(
        "\n--on-hang stop: because of this hang, hangdoc ends the run, and exits with code 86.\n"
    )


class Node(Started):
    """One node of two: a torchrun under `hangdoc run`, with a host name of its own."""

    def __init__(self, number: int, port: int, folder: Path, *options: str) -> None:
        self.number = number
        ranks = torchrun(
            "/never", nnodes=2, node_rank=number, nproc_per_node=1, master_addr="127.0.0.1", master_port=port
        )
        under = ["unshare", "--uts", "sh", "-c", f'hostname node{number} && exec "$@"', "sh"]
        super().__init__(*ranks, options=quick(folder, *options), around=under)


@pytest.mark.usefixtures("can_attach")
def test_the_node_of_rank_0_reports_for_all(tmp_path: Path) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        nodes = [Node(number, port, tmp_path, "--on-hang", "stop") for number in range(2)]
        for node in nodes:
            stack.callback(node.end)
        said = ["\n".join(hangdoc_said(node.process.communicate(timeout=_SECONDS)[1])) for node in nodes]
        assert [node.process.returncode for node in nodes] == [86, 86], said
    assert "HD202 missing-rank" in said[0]
    (report,) = tmp_path.glob("*.txt")
    assert "node1" in report.read_text()
    assert f"reported by node0 in {report}" in said[1]
    assert "HD202" not in said[1]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".hangdoc", ".html", ".txt"]  # nothing else is left
