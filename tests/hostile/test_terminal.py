"""Standard streams that are closed, full, unread or ASCII only, and terminals that are not there or go away: one sentence, and a
documented exit code."""

import fcntl
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from hangdoc import codec
from hangdoc.commands import documents
from hangdoc.phrases import printable
from hangdoc.render.words import clean
from hangdoc_trainer.scenarios import SCENARIOS, Started
from tests.rules import fires

HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
_CODES = {
    "diagnose BUNDLE": {1},
    "diagnose BUNDLE --json": {1},
    "diagnose --json --pid 4194303": {3},
    "rules": {0},
    "rules HD101": {0},
    "rules --json": {0},
    "schema": {0},
    "demo --list": {0},
    "doctor": {0, 4},
    "doctor --json": {0, 4},
    "launch-diff 'torchrun --nproc-per-node=1 a.py' 'torchrun --nproc-per-node=2 ü.py'": {1},
    "launch-diff --json 'torchrun a.py' 'torchrun b.py'": {1},
    "launch-explain 'torchrun a.py'": {0},
    "preflight": {0, 1},
    "preflight --json": {0, 1},
    "snapshot --as-text --window 0.1 --pid SELF": {0},
    "--help": {0},
    "diagnose --help": {0},
    "--version": {0},
}
"""Commands that print on standard output, with their exit codes."""
_LOST = "hangdoc: standard output cannot be written: "


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("terminal") / "hung.hangdoc"
    codec.write(fires("HD101"), path)
    return str(path)


@pytest.fixture(scope="module")
def frozen(can_attach: None) -> Iterator[Started]:
    with Started(SCENARIOS["shard-mismatch"]) as run:
        yield run


def run(
    words: str, bundle: str, redirected: str = "", stdout: int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a shell's redirections."""
    command = shlex.split(words.replace("BUNDLE", shlex.quote(bundle)).replace("SELF", str(os.getpid())))
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", HANGDOC, *command],
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=200, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirected", "why"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")], ids=["closed", "full"]
)
@pytest.mark.parametrize("words", _CODES)
def test_lost_output_is_an_error(words: str, bundle: str, redirected: str, why: str) -> None:
    done = run(words, bundle, redirected)
    assert done.returncode == 2
    *others, last = done.stderr.decode().splitlines()
    assert last == f"{_LOST}{why}."
    assert not others or words.endswith("4194303")  # whose own sentence comes first, or is the only one
    # in both cases without a traceback, which has several lines


@pytest.mark.parametrize("words", _CODES)
def test_a_reader_that_has_left_changes_no_exit_code(words: str, bundle: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = run(words, bundle, stdout=write)
    finally:
        os.close(write)
    assert done.returncode in _CODES[words]
    assert len(done.stderr.splitlines()) == ("4194303" in words)


@pytest.mark.parametrize("redirected", ["2>&-", "<&- 2>/dev/full"])
@pytest.mark.parametrize("words", [*_CODES, "diagnose absent.hangdoc", "diagnose --window nan"])
def test_standard_error_and_input_are_not_needed(words: str, bundle: str, redirected: str) -> None:
    done = run(words, bundle, redirected)
    assert done.returncode in _CODES.get(words, {2})
    assert (done.stdout != b"") == (words in _CODES)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("redirected", [">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["diagnose BUNDLE", "rules --json", "diagnose absent.hangdoc"])
def test_no_standard_stream_at_all(words: str, bundle: str, redirected: str) -> None:
    assert run(words, bundle, redirected).returncode == 2


def test_files_are_written_though_the_report_is_lost(bundle: str, tmp_path: Path) -> None:
    page, copy = tmp_path / "report.html", tmp_path / "copy.hangdoc"
    assert run(f"diagnose BUNDLE --html {page} --save {copy}", bundle, ">&-").returncode == 2
    assert page.read_text().rstrip().endswith("</html>")
    assert codec.read(copy) == codec.read(Path(bundle))


@pytest.mark.live
@pytest.mark.parametrize("redirected", [">/dev/full", ">&- 2>&-"], ids=["full", "closed"])
def test_a_hang_is_acted_on_though_nobody_can_be_told(
    frozen: Started, redirected: str, bundle: str, tmp_path: Path
) -> None:
    pids = " ".join(f"--pid {pid}" for pid in frozen.pids)
    options = f"--interval 1 --patience 1 -o {tmp_path} --on-hang 'touch {tmp_path}/ran'"
    done = run(f"watch {pids} {options}", bundle, redirected)
    assert done.returncode == 1
    assert (tmp_path / "ran").exists()
    assert list(tmp_path.glob("*.html"))
    assert b"Traceback" not in done.stderr
    assert ("2>" in redirected) or done.stderr.count(b"standard output cannot be written") == 1


_INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("redirected", "code", "why"),
    [(">&-", 2, "it is closed"), (">/dev/full", 2, "No space left on device"), ("2>&-", 0, ""), ("2>/dev/full", 0, "")],
)
def test_an_agent_that_cannot_be_answered(redirected: str, code: int, why: str) -> None:
    server = subprocess.Popen(
        ["sh", "-c", f"exec {HANGDOC} mcp {redirected}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, said = server.communicate(json.dumps(_INITIALIZE) + "\n", timeout=200)
    assert server.returncode == code
    assert said == (f"{_LOST}{why}.\n" if why else "")
    assert bool(out) == (not why)


_ASCII = {"PYTHONIOENCODING": "ascii"}
_C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("variables", [_ASCII, _C_LOCALE], ids=["ascii", "c-locale"])
@pytest.mark.parametrize(
    "words", [*_CODES, "diagnose ünbekannt", "rules ü", "diagnose --window ü", "diagnose --hosts ü"]
)
def test_ascii_only(words: str, bundle: str, variables: dict[str, str]) -> None:
    done = run(words, bundle, **variables)
    assert b"Traceback" not in done.stderr
    assert (done.stdout + done.stderr).isascii()
    if words in _CODES and "launch" not in words:  # in the C locale, its arguments are other bytes
        assert done.returncode in _CODES[words]
    if "--json" in words:
        json.loads(done.stdout)


_BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
_HIDDEN = (
    _BIDI + "\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\U000e0041\u034f\u115f\u1160\u3164\uffa0\ufe0f\U000e0100\u2800"
)
_CONTROLS = "\x1b\x7f\x80\x9b\u2028\u2029\r\b"


def test_what_a_terminal_would_obey_or_hide_is_shown() -> None:
    for character in _HIDDEN + _CONTROLS:
        assert printable(f"a{character}b") == clean(f"a{character}b") == "a·b", hex(ord(character))
    assert clean("größe 模型 é 😀 ▶") == "größe 模型 é 😀 ▶"


def test_json_has_no_character_that_a_terminal_would_obey(tmp_path: Path) -> None:
    text = f"{_HIDDEN}{_CONTROLS}größe 模型 😀"
    diagnosed = fires("HD101")
    (host,) = diagnosed.hosts
    path = tmp_path / "bidi.hangdoc"
    codec.write(msgspec.structs.replace(diagnosed, hosts=(msgspec.structs.replace(host, name=text),)), path)
    done = run("diagnose --json BUNDLE", str(path))
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert b"\x7f" not in done.stdout
    assert {rank["host"] for rank in json.loads(done.stdout)["jobs"][0]["ranks"]} == {text}
    shown = run("diagnose BUNDLE", str(path)).stdout.decode()
    assert not set(shown) & set(_HIDDEN + _CONTROLS)


def test_a_document_with_a_path_that_is_not_utf_8() -> None:
    page = documents.RulePage(code="HD\udcff", name="\x7f", says="😀\u202e")
    text = documents.text(documents.Rules(rules=(page,)))
    assert text.isascii()
    (rule,) = json.loads(text)["rules"]
    assert (rule["code"], rule["name"], rule["says"]) == ("HD?", "\x7f", "😀\u202e")


@contextmanager
def top(term: str = "xterm-256color", *, deaf: bool = False) -> Iterator[tuple["subprocess.Popen[bytes]", int, int]]:
    """`hangdoc top` in a terminal: the process, and the two ends of its terminal. `deaf`: it ignores SIGHUP, as under nohup."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    ignored = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"] if deaf else []
    child = subprocess.Popen(
        [*ignored, "setsid", "--ctty", HANGDOC, "top", "--pid", str(os.getpid())],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": term},
    )  # fmt: skip
    os.set_blocking(ours, False)
    ends = [ours, theirs]
    try:
        yield child, ours, theirs
    finally:
        child.kill()
        child.wait()
        for end in ends:
            with suppress(OSError):  # the test has closed it
                os.close(end)


def read_until(terminal: int, text: bytes, seconds: float = 200) -> bytes:
    """What a terminal has shown until this text."""
    shown, until = b"", time.monotonic() + seconds
    while text not in shown:
        assert time.monotonic() < until, shown[-2000:]
        with suppress(BlockingIOError):
            shown += os.read(terminal, 1 << 16)
        time.sleep(0.01)
    return shown


def end_of(child: "subprocess.Popen[bytes]", terminal: int) -> tuple[int, bytes]:
    """The exit code of a command, and what it has shown in its terminal until its end."""
    shown, until = b"", time.monotonic() + 200
    while child.poll() is None:
        assert time.monotonic() < until, shown[-2000:]
        with suppress(BlockingIOError):
            shown += os.read(terminal, 1 << 16)
        time.sleep(0.01)
    with suppress(BlockingIOError):
        shown += os.read(terminal, 1 << 16)
    return child.returncode, shown


_BEGUN, _OVER = b"\x1b[?1049h", b"\x1b[?1049l"
"""The alternate screen, on and off."""


@pytest.mark.parametrize("ends", ["ctrl-c", "SIGINT", "SIGTERM", "q"])
def test_top_leaves_the_terminal_as_it_was(ends: str) -> None:
    with top() as (child, ours, theirs):
        before = termios.tcgetattr(theirs)
        read_until(ours, b"rank found yet")
        if ends in ("ctrl-c", "q"):
            os.write(ours, {"ctrl-c": b"\x03", "q": b"q"}[ends])
        else:
            child.send_signal(getattr(signal, ends))
        code, shown = end_of(child, ours)
        assert code == {"ctrl-c": 130, "SIGINT": 130, "SIGTERM": 143, "q": 0}[ends]
        assert _OVER in shown
        assert b"Traceback" not in shown
        assert termios.tcgetattr(theirs) == before


@pytest.mark.parametrize("deaf", [False, True], ids=["", "nohup"])
def test_top_ends_with_its_terminal(deaf: bool) -> None:
    with top(deaf=deaf) as (child, ours, theirs):
        read_until(ours, _BEGUN)
        os.close(theirs)
        os.close(ours)
        assert child.wait(100) == (128 + signal.SIGHUP if deaf else -signal.SIGHUP)


@pytest.mark.parametrize("term", ["", "dumb"])
def test_top_needs_a_terminal_that_can_show_a_screen(term: str) -> None:
    with top(term) as (child, ours, _):
        code, shown = end_of(child, ours)
    assert code == 2
    assert shown.count(b"\n") == 1
    assert b"TERM is " in shown


@pytest.mark.parametrize("number", [0, 1, 2])
def test_top_needs_a_terminal(number: int) -> None:
    ours, theirs = pty.openpty()
    streams: list[int] = [theirs, theirs, theirs]
    streams[number] = subprocess.PIPE if number == 2 else subprocess.DEVNULL
    try:
        child = subprocess.Popen([HANGDOC, "top"], stdin=streams[0], stdout=streams[1], stderr=streams[2])
        _, complaint = child.communicate(timeout=200)
        assert child.returncode == 2
        if number != 2:
            os.set_blocking(ours, False)
            complaint = os.read(ours, 1 << 16)
    finally:
        os.close(theirs)
        os.close(ours)
    name = ("input", "output", "error")[number]
    assert complaint.decode().startswith(f"hangdoc: hangdoc top needs a terminal, but standard {name} is not one.")
    assert complaint.count(b"\n") == 1
