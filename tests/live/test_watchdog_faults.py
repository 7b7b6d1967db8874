"""What goes wrong with the watchdog itself: training goes on, and one line says what was not possible."""

import re
import sys
from pathlib import Path

import pytest

from hangdoc_trainer.offspring import free_port
from tests.live.needs import needs
from tests.live.watched import PROGRAMS, running, under_torchrun

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
QUIET = f"{sys.executable} {PROGRAMS / 'quiet.py'}"


def mounted(script: str) -> tuple[str, ...]:
    """A shell script in mounts of its own."""
    needs("root", "unshare")
    return "unshare", "--mount", "sh", "-c", script


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        ("mount -t tmpfs -o size=32k none out; head -c 30000 /dev/zero > out/x", "No space left on device"),
        ("mount -t tmpfs -o ro none out", "Read-only file system"),
    ],
)
def test_a_directory_that_takes_nothing(prepare: str, reason: str, tmp_path: Path) -> None:
    """The evidence goes where temporary files go."""
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    private = "mount --bind elsewhere /tmp" if not str(tmp_path).startswith("/tmp/") else "true"
    with running(tmp_path, *mounted(f"{prepare}; {private}; {QUIET} out"), MASTER_PORT=tmp_path.name) as run:
        run.wait_for("full report")
        run.go_on()
        log = run.wait_for("through")
        assert run.launcher.wait(100) == 0
    assert len(re.findall(f"cannot write evidence into .*{reason}", log)) == 1
    (said,) = re.findall(r"full report: hangdoc diagnose (\S+)", log)
    assert said.startswith("/tmp/hangdoc-")
    assert re.search(r"makes progress again after \d+ s", log)
    folder = Path(said)
    if folder.exists():  # /tmp was not private
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_py_spy_is_missing(tmp_path: Path) -> None:
    tool = Path(sys.executable).with_name("py-spy")
    with running(tmp_path, *mounted(f"mount --bind /dev/null {tool}; {QUIET} out")) as run:
        run.wait_for("full report|no report was written")
        run.go_on()
        log = run.wait_for("through")
    (folder,) = (tmp_path / "out").glob("hangdoc-*")
    assert "rank 0: polling (asleep between attempts) at" in log + (folder / "report.txt").read_text()  # from memory
    assert "quiet.py" in (folder / "rank-0.stacks.txt").read_text()


def test_a_hang_while_the_interpreter_shuts_down(tmp_path: Path) -> None:
    program = (
        "import os, threading, time\n"
        "from hangdoc.watchdog import Watchdog\n"
        "Watchdog(1, directory='out').start().beat(7)\n"
        "def outlive():\n"
        "    while not os.path.exists('over'): time.sleep(0.1)\n"
        "threading.Thread(target=outlive).start()\n"
    )
    with running(tmp_path, sys.executable, "-c", program) as run:
        log = run.wait_for("full report")
        run.go_on()
        assert run.launcher.wait(100) == 0
    assert "no progress for 1 s (step 7, phase train)" in log
    (folder,) = (tmp_path / "out").glob("hangdoc-*")
    assert "threading.py" in (folder / "rank-0.stacks.txt").read_text()
    assert not list((tmp_path / "runtime" / "hangdoc").glob("*.beacon"))


def test_two_jobs_of_one_user_keep_apart(tmp_path: Path) -> None:
    shared = str(tmp_path / "runtime")
    with (
        under_torchrun(tmp_path / "one", "watched.py", "sleep", "report", XDG_RUNTIME_DIR=shared) as one,
        under_torchrun(tmp_path / "other", "watched.py", "stop", "report", XDG_RUNTIME_DIR=shared) as other,
    ):
        (tmp_path / "runtime").mkdir(exist_ok=True)
        logs = [run.wait_for("full report", 2 if run is one else 1) for run in (one, other)]
        folders = [run.hang() for run in (one, other)]
    assert "error HD202 missing-rank" in logs[0]
    assert "error HD302 rank-stopped" in logs[1]
    assert "HD302" not in logs[0]
    assert folders[0].name != folders[1].name
    for folder, log in zip(folders, logs, strict=True):
        assert set(re.findall(r"hangdoc diagnose (\S+)", log)) == {str(folder)}


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """It lives in rank 0, which is stopped; rank 1 is on another host, and tells what it can see in a few seconds."""
    port = str(free_port())

    def host(number: int) -> dict[str, str]:
        return {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip

    command = (sys.executable, str(PROGRAMS / "two_hosts.py"), "stop")
    with running(tmp_path / "a", *command, **host(0)), running(tmp_path / "b", *command, **host(1)) as run:
        log = run.wait_for("full report: hangdoc diagnose")
        folder = run.hang()
    assert len(re.findall("cannot reach the other hosts: the run's store did not answer", log)) == 1
    assert "no progress for 3 s" in log or "no progress for 4 s" in log
    assert {path.name for path in folder.glob("rank-*")} == {"rank-1.stacks.txt", "rank-1.flight.json"}
    assert re.search(r"UNKNOWN|HUNG", log)
    assert "rank 1" in (folder / "report.txt").read_text()
