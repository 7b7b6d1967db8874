"""`hangdoc top` on a real frozen run, in a real terminal: tmux types, and its screen is read."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hangdoc_trainer.scenarios import Node, Scenario, Started
from tests.live.needs import needs, shares

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_PACED = ("--num-iterations", "100000", "--step-seconds", "0.05")
HANGDOC = Path(sys.executable).with_name("hangdoc")


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, width: int, height: int, command: str) -> None:
        self._name = f"hangdoc-{uuid.uuid4().hex[:8]}"
        # tmux may start the shell before its window has that size, and the shell then exports the wrong one.
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), f"unset COLUMNS LINES; {command}")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True, timeout=100
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self, *options: str) -> str:
        return self._tmux("capture-pane", "-p", *options)

    def click(self, text: str) -> None:
        """With the left button on the first place of a text, as xterm reports it (SGR, mode 1006)."""
        lines = self.screen().splitlines()
        row = next(at for at, line in enumerate(lines) if text in line)
        for final in "Mm":
            self._tmux("send-keys", "-l", f"\x1b[<0;{lines[row].index(text) + 1};{row + 1}{final}")

    def wait_for(self, *texts: str, each_rank: str = "", seconds: float = 200) -> str:
        """Until all of these are on the screen, and the pattern is in the row of each rank."""
        until = time.monotonic() + seconds
        while True:
            seen = self.screen()
            rows = [line for line in seen.splitlines() if re.match(r"[▸ ] [● ]\d+  ", line)]
            if all(text in seen for text in texts) and all(re.search(each_rank, row) for row in rows):
                return seen
            assert time.monotonic() < until, seen
            time.sleep(0.2)

    def end(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def terminal() -> Iterator[list[Terminal]]:
    needs("tmux")
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.end()


@shares("shard-mismatch")
def test_the_culprit_stands_on_the_screen(run: Started, terminal: list[Terminal]) -> None:
    pids = " ".join(f"--pid {pid}" for pid in run.pids)
    top = Terminal(100, 30, f"{HANGDOC} top {pids} --patience 2 --interval 1; sleep 1000")
    terminal.append(top)
    screen = top.wait_for("HUNG", "HD101 shard-mismatch", "●1", "barrier")
    assert "■ 2 blocked" in screen
    top.type("Enter")
    top.wait_for("dist.barrier()", "rank 1  ■ blocked: in-collective  pid")
    top.type("4")
    screen = top.wait_for("rank 1 is the culprit: HD101 shard-mismatch", "a cycle for", "╭▸ ●rank 1", "╰─ rank 0")
    assert len(re.findall(r"^[▸ ] *[╭╰│]", screen, re.MULTILINE)) == 2  # each rank once
    top.type("5")
    top.wait_for("ended at 3 of 3", "3 of 2")
    top.type("i")
    top.wait_for("culprit   rank 1", "evidence")
    top.type("PageDown")
    top.wait_for("to do")
    top.type("Escape")
    top.type("q")
    assert "Traceback" not in top.screen()


def test_a_recording_in_a_small_terminal(terminal: list[Terminal]) -> None:
    bundle = Path(__file__).parents[1] / "corpus" / "trainer_rank_stops.hangdoc"
    top = Terminal(80, 24, f"{HANGDOC} top {bundle}; echo it ended with $?; sleep 1000")
    terminal.append(top)
    top.wait_for("HD302 rank-stopped", "●1", "blocked: stopped", "q quit")
    top.type("q")
    top.wait_for("it ended with 0")


def test_a_freeze_that_forms_while_somebody_watches(terminal: list[Terminal]) -> None:
    with Started(Scenario("watched", "a healthy run", (Node(ranks=2),), _PACED, frozen=False)) as run:
        pids = " ".join(f"--pid {pid}" for pid in run.pids)
        top = Terminal(120, 36, f"{HANGDOC} top {pids} --rate 1; sleep 1000")
        terminal.append(top)
        top.wait_for("HEALTHY", "base_train.py · torchrun · 2 ranks", each_rank="[▂-█]")
        stopped = run.rank_pids()[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            top.wait_for("HUNG", "HD302 rank-stopped", "▼", each_rank="[▂-█].*(──|══)")
            top.click("4 Waits")
            top.wait_for("rank 1 is the culprit: HD302 rank-stopped", "└ rank 0")
            top.click("└ rank 0")
            top.click("└ rank 0")  # on the row that is selected: opens it
            top.wait_for("rank 0  ", "  pid ", "Trainer.train")
        finally:
            os.kill(stopped, signal.SIGCONT)


@pytest.mark.parametrize(
    ("settings", "forbidden"),
    [("NO_COLOR=1", r"\x1b\[[0-9;]*\b[34][0-8]\b"), ("TERM=xterm COLORTERM=", r"\x1b\[[0-9;]*\b[34]8;")],
    ids=["no colours", "16 colours"],
)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (200, 60)])
def test_terminals_with_few_colours(
    terminal: list[Terminal], width: int, height: int, settings: str, forbidden: str
) -> None:
    bundle = Path(__file__).parents[1] / "corpus" / "trainer_shard_mismatch.hangdoc"
    top = Terminal(width, height, f"env {settings} {HANGDOC} top {bundle}; sleep 1000")
    terminal.append(top)
    top.wait_for("▸ ●1", "■ barrier", "q quit")
    assert re.findall(forbidden, top.screen("-e")) == []


def test_a_host_without_ranks_says_what_it_looks_for(terminal: list[Terminal]) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        top = Terminal(80, 24, f"{HANGDOC} top --pid {sleeper.pid}; sleep 1000")
        terminal.append(top)
        top.wait_for("no torch.distributed rank found yet", f"pid {sleeper.pid} has not loaded torch")
    finally:
        sleeper.kill()
        sleeper.wait()


def test_it_ends_although_a_host_does_not_reply(terminal: list[Terminal], tmp_path: Path) -> None:
    """Long before the time limit of the host, and with what it has started."""
    silent = tmp_path / "silent"
    silent.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    silent.chmod(0o755)
    top = Terminal(
        80,
        24,
        f"{HANGDOC} top --hosts a --via '{silent} {{host}}' --host-timeout 900 --timeout 1000; echo it has ended; cat",
    )
    terminal.append(top)
    top.wait_for("looking for torch.distributed ranks: a")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.1)
    top.type("q")
    top.wait_for("it has ended", seconds=100)
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int((tmp_path / "pid").read_text())).status() == psutil.STATUS_ZOMBIE


def test_what_is_no_bundle_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.hangdoc").write_text("nothing")
    done = subprocess.run([HANGDOC, "top", tmp_path / "x.hangdoc"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
