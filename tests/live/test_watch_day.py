"""`hangdoc watch` for days: many runs, restarts, and its own end."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdoc_trainer.offspring import free_port
from hangdoc_trainer.scenarios import start
from tests.live.needs import apart

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_a_short_day() -> None:
    """Six runs, two of which freeze, with a kill -9 and a restart of the watch in the middle."""
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "tui", "trainer"))
    command = apart(sys.executable, "-m", "bench.watch_day", "6", "4", "15", "15")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "2 runs froze: 2 reported, 0 reported twice" in done.stdout
    assert "0 of 4 healthy runs were reported" in done.stdout


def until(true: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.timeout(900)
def test_a_watch_that_is_killed_while_it_delivers_repeats_that_message_only(tmp_path: Path) -> None:
    """The receiver never answers the first time, and the watch is killed in the middle of the delivery."""
    taken: list[dict[str, object]] = []
    first, let_go = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            if not first.is_set():
                first.set()
                let_go.wait(600)
                return
            taken.append(json.loads(raw)["event"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    port = free_port()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state = tmp_path / "state.json"
    with start("rank-stops") as run:
        pids = [word for pid in run.pids for word in ("--pid", str(pid))]
        command = [HANGDOC, "watch", *pids, "--interval", "1", "--patience", "2", "-o", str(tmp_path), "--keep",
                   "--state", str(state), "--webhook", f"http://127.0.0.1:{port}/"]  # fmt: skip
        with (tmp_path / "log").open("wb") as log:
            # A session of its own, as a service has: beside all other tests, nice 19 would leave it no processor for minutes.
            watch = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                until(first.is_set)
                watch.kill()
                watch.wait()
                kept = json.loads(state.read_text())
                assert (len(kept["queues"]["webhook"]), kept["counts"]["hangs"]) == (1, 1)
                let_go.set()
                watch = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                until(lambda: taken)
                until(lambda: not json.loads(state.read_text())["queues"]["webhook"])
                looks = json.loads(state.read_text())["counts"]["looks"]
                until(lambda: json.loads(state.read_text())["counts"]["looks"] >= looks + 4)
                assert [event["kind"] for event in taken] == ["hang"]
                assert taken[0]["delivery"] == kept["queues"]["webhook"][0]["delivery"]
                run.__exit__(None, None, None)
                assert watch.wait(300) == 0  # with --pid it ends with its processes
            finally:
                if watch.poll() is None:
                    watch.send_signal(signal.SIGKILL)
                    watch.wait()
                server.shutdown()
    assert [(event["kind"], event.get("ending")) for event in taken] == [("hang", None), ("resolved", "ended")]
    assert taken[0]["id"] == taken[1]["id"]
    assert len(list(tmp_path.glob("*.hangdoc"))) == 1
