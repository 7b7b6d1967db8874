"""Counts wrong verdicts of many observers of one run in which nothing is wrong.

python -m bench.observers [LOOKS] [training|idle]; `make observers`. The run trains, or it is a model server that gets no request.
The observers are two loops of `diagnose`, one loop of the snapshots that a
watchdog takes, `watch`, `top`, and plain py-spy. They run until they have taken LOOKS looks together. The exit code is 1 if a
verdict was neither healthy nor waiting; the evidence of that look is saved in the working directory.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.table import HANGDOC, PY_SPY
from hangdoc import codec
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Snapshot
from hangdoc_trainer.offspring import free_port
from hangdoc_trainer.scenarios import SCENARIOS, Started

RIGHT = ("healthy", "waiting")
_SERVER = Path(__file__).parents[1] / "hangbench/serving/programs/model_server.py"


class IdleServer:
    """A model server of three ranks that gets no request. As a context manager, it is ready when it is entered, and ends."""

    def __init__(self, folder: Path) -> None:
        self._ready = folder / "ready.json"
        self._log = folder / "server.log"

    def __enter__(self) -> "IdleServer":
        command = [sys.executable, str(_SERVER), "--port", str(free_port()), "--ready", str(self._ready)]
        with self._log.open("w") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while not self._ready.exists():
            if self._server.poll() is not None:
                raise RuntimeError(f"the server has ended: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()

    @property
    def pids(self) -> list[int]:
        """The front end."""
        return [self._server.pid]

    def rank_pids(self) -> dict[int, int]:
        """The pid of each rank."""
        roles: dict[str, int] = json.loads(self._ready.read_bytes())["roles"]
        return {int(role.split()[1]): pid for role, pid in roles.items() if role.startswith("rank")}


class Observers:
    """All observers of a run. `verdicts` counts the verdicts by observer, `wrong` holds wrong verdicts in words."""

    def __init__(self, run: Started | IdleServer, looks: int, folder: Path, keep: Path | None = None) -> None:
        self._pid, self._wanted, self._folder, self._keep = run.pids[0], looks, folder, keep
        self._ranks = list(run.rank_pids().values())
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.problems: Counter[str] = Counter()

    def run(self) -> None:
        """Run until there are enough looks."""
        top = Polling(Options(pids=(self._pid,)))
        loops: dict[str, Callable[[], None]] = {
            "diagnose 1": lambda: self._diagnose("diagnose 1"),
            "diagnose 2": lambda: self._diagnose("diagnose 2"),
            "watchdog": self._snapshot,
            "top": lambda: self._judge("top", top.look()),
        }
        with ExitStack() as stack:
            log = stack.enter_context((self._folder / "watch.log").open("w+"))
            watch = subprocess.Popen(
                [HANGDOC, "watch", "--pid", str(self._pid), "--interval", "1", "--keep", "-o", str(self._folder)],
                stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
            stack.callback(watch.wait)
            stack.callback(watch.terminate)
            threads = [threading.Thread(target=self._loop, args=(one,)) for one in (*loops.values(), self._py_spy)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            log.seek(0)
            for line in log:
                verdict = line.split()[1].rstrip(":") if len(line.split()) > 1 else ""
                if verdict in (*RIGHT, "hung", "unknown"):
                    self._count("watch", verdict, line.strip())

    def looks(self) -> int:
        """The number of looks so far."""
        return sum(self.verdicts.values())

    def _loop(self, look: Callable[[], None]) -> None:
        while self.looks() < self._wanted:
            look()

    def _count(self, who: str, verdict: str, text: str) -> None:
        self.verdicts[who, verdict] += 1
        if verdict not in RIGHT:
            self.wrong.append(f"{who}: {text}")
            print(self.wrong[-1], flush=True)

    def _diagnose(self, who: str) -> None:
        done = subprocess.run(
            [HANGDOC, "diagnose", "--json", "--pid", str(self._pid)], capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout)
        self.problems.update(found["problems"])
        summaries = [finding["summary"] for job in found["jobs"] for finding in job["findings"]]
        self._count(who, found["verdict"], f"{found['verdict']}: {summaries} {found['problems']}")

    def _snapshot(self) -> None:
        bundle = self._folder / "watchdog.hangdoc"
        pids = [word for pid in self._ranks for word in ("--pid", str(pid))]
        subprocess.run([HANGDOC, "snapshot", "-o", str(bundle), *pids], capture_output=True, check=True)
        self._judge("watchdog", codec.read(bundle))

    def _judge(self, who: str, snapshot: Snapshot) -> None:
        found = diagnose(snapshot)
        self.problems.update(found.problems)
        if found.verdict not in RIGHT and self._keep is not None:
            codec.write(snapshot, self._keep / f"observers-{who}-{self.looks()}.hangdoc")
        summaries = [finding.summary for job in found.jobs for finding in job.findings]
        self._count(who, found.verdict, f"{found.verdict}: {summaries}")

    def _py_spy(self) -> None:
        for pid in self._ranks:
            subprocess.run([PY_SPY, "dump", "--pid", str(pid)], capture_output=True, check=False)
        time.sleep(0.2)


def main(looks: int = 200, what: str = "training") -> int:
    """Run all observers and print the table."""
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        run = stack.enter_context(IdleServer(Path(folder)) if what == "idle" else Started(SCENARIOS["healthy"]))
        observers = Observers(run, looks, Path(folder), Path.cwd())
        observers.run()
    for (who, verdict), count in sorted(observers.verdicts.items()):
        print(f"{who:12} {verdict:8} {count:5}")
    for text, count in observers.problems.most_common(5):
        print(f"problem, {count} times: {text}")
    print(f"{observers.looks()} looks in {time.monotonic() - began:.0f} s: {len(observers.wrong)} wrong")
    return 1 if observers.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:3]))
