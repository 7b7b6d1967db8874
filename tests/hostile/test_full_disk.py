"""A full disk, and a quota: the messages about a hang do not depend on it."""

import errno
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import hangdoc
from tests.live.needs import needs

WATCH = """
import sys
from pathlib import Path
from hangdoc.reasoning.engine import diagnose
from hangdoc.watch.act import Reaction, Targets
from hangdoc.watch.confirm import Confirmation
from hangdoc.watch.evidence import EvidenceDirectory
from hangdoc.watch.state import Ledger
from tests.unit.builders import c10d, rank, snapshot, train

folder, url = Path(sys.argv[1]), sys.argv[2]
if len(sys.argv) > 3:
    from hangdoc import file_writer

    def full(file, content):
        raise OSError(int(sys.argv[3]), __import__("os").strerror(int(sys.argv[3])))

    file_writer._write_all = full
seen = snapshot(rank(0, *c10d("all_reduce"), train(15)), rank(1, train(15), state="T"))
verdict = diagnose(seen, patience=0.0)
confirmation = Confirmation(0.0)
confirmation.add(verdict, 1.0)
changes = confirmation.add(verdict, 2.0)
assert changes.began
said = lambda text: print(text, file=sys.stderr)
command = ("sh", "-c", "cat; echo; env | grep ^HANGDOC_ | sort")
state = None if len(sys.argv) <= 3 else folder / "state"
ledger = Ledger(None, said)
reaction = Reaction(EvidenceDirectory(folder, lambda *_: "page " * 40_000), ledger, Targets(command, url), said,
                    lambda kept: None)
reaction.act(seen, verdict, changes.began, (), confirmation.hangs)
reaction.finish()
"""


@pytest.fixture
def received():
    """(address of a receiver of messages, the messages)."""
    bodies: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", bodies
    server.shutdown()
    server.server_close()
    thread.join()


def _complete(done: "subprocess.CompletedProcess[str]", bodies: list[bytes], reason: str) -> None:
    assert done.returncode == 0, done.stderr
    assert "HD302" in done.stdout, done.stderr
    lines = done.stdout.splitlines()
    for name in ("HANGDOC_BUNDLE=", "HANGDOC_PAGE=", "HANGDOC_VERDICT=hung"):
        assert name in lines
    assert len(bodies) == 1
    (said,) = [line for line in done.stderr.splitlines() if reason in line]
    assert "could not be kept; messages are sent" in said


def test_a_full_disk_delays_no_message(tmp_path: Path, received: tuple[str, list[bytes]]) -> None:
    """Row 11: `--on-hang` was not run."""
    needs("root", "unshare")
    url, bodies = received
    (tmp_path / "watch.py").write_text(WATCH)
    script = 'mount -t tmpfs -o size=16k none $1; head -c 14000 /dev/zero > $1/x; exec "$2" "$3" "$1" "$4"'
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, "sh", str(tmp_path / "out"), sys.executable, str(tmp_path / "watch.py"), url],
        capture_output=True, text=True, check=False, timeout=200, env=os.environ | {"PYTHONPATH": _path()},
    )  # fmt: skip
    _complete(done, bodies, "no space left on device")


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO, errno.EROFS])
def test_neither_does_a_quota(number: int, tmp_path: Path, received: tuple[str, list[bytes]]) -> None:
    url, bodies = received
    (tmp_path / "watch.py").write_text(WATCH)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "watch.py"), str(tmp_path / "out"), url, str(number)],
        capture_output=True, text=True, check=False, timeout=200, env=os.environ | {"PYTHONPATH": _path()},
    )  # fmt: skip
    _complete(done, bodies, os.strerror(number)[1:])
    assert list((tmp_path / "out").iterdir()) == []


def _path() -> str:
    root = Path(hangdoc.__file__).parents[1]
    return os.pathsep.join(map(str, (root, root / "tui", root / "trainer")))
