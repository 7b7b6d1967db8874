"""`hangdoc watch` on a run that freezes under its eyes."""

import http.server
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc_trainer.scenarios import Started
from tests.live.needs import shares

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
# Each watch has a session of its own, as a service has: beside the processes of all other tests, its nice 19 would leave it no
# processor for minutes (sched(7), autogroup).


@pytest.fixture
def hook() -> Iterator[tuple[str, list[bytes]]]:
    """A web server that keeps what is posted to it."""
    taken: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hang", taken
    server.shutdown()


@shares("rank-stops")
def test_a_hang_is_confirmed_kept_and_told(run: Started, tmp_path: Path, hook: tuple[str, list[bytes]]) -> None:
    url, posted = hook
    told = tmp_path / "told"
    script = tmp_path / "on-hang"
    script.write_text(f'#!/bin/sh\n{{ cat; env | grep ^HANGDOC_; printf "%s\\n" "$@"; }} > {told}\n')
    script.chmod(0o755)
    pids = [word for pid in run.pids for word in ("--pid", str(pid))]
    command = [HANGDOC, "watch", *pids, "--interval", "1", "--patience", "2", "-o", str(tmp_path),
               "--on-hang", f"{script} '$(touch {tmp_path}/harm)'", "--webhook", url]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, start_new_session=True)
    assert done.returncode == 1, done.stderr
    (bundle,) = tmp_path.glob("*.hangdoc")
    again = subprocess.run([HANGDOC, "diagnose", "--json", bundle], capture_output=True, text=True, check=False)
    (job,) = json.loads(again.stdout)["jobs"]
    assert (job["findings"][0]["code"], job["findings"][0]["culprits"]) == ("HD302", [1])
    said = told.read_text()
    assert "HD302 rank-stopped" in said
    assert f"HANGDOC_BUNDLE={bundle}" in said
    assert "HANGDOC_VERDICT=hung" in said
    assert f"$(touch {tmp_path}/harm)" in said  # a word, not a command
    assert not (tmp_path / "harm").exists()
    (document,) = posted
    assert json.loads(document)["jobs"][0]["findings"][0]["code"] == "HD302"


@shares("healthy")
def test_a_healthy_run_is_only_measured(run: Started, tmp_path: Path) -> None:
    pids = [word for pid in run.pids for word in ("--pid", str(pid))]
    child = subprocess.Popen(
        [HANGDOC, "watch", *pids, "--interval", "1", "--patience", "1", "-o", str(tmp_path), "--metrics", "0"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stderr is not None
        address = child.stderr.readline().split()[-1]
        assert address.startswith("127.0.0.1:")
        until = time.monotonic() + 300  # on a busy machine a look takes its whole timeout
        while 'verdict="healthy"} 1.0' not in (page := _scrape(address)):
            assert time.monotonic() < until, page
            time.sleep(0.5)
        assert "hangdoc_rank_batches_done" in page
        enough = _looks(page) + 4  # two looks confirm a hang
        while _looks(page) < enough:
            assert time.monotonic() < until, page
            time.sleep(0.5)
            page = _scrape(address)
        assert "hangdoc_hangs_total 0.0" in page
        assert child.poll() is None
    finally:
        child.terminate()
        child.wait(100)
    assert not list(tmp_path.iterdir())


def _looks(page: str) -> float:
    return float(next(line.split()[1] for line in page.splitlines() if line.startswith("hangdoc_looks_total ")))


def _scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=100) as page:
        return str(page.read().decode())
