"""A cluster's day in minutes: `hangdoc watch` over many runs that come and go, a third of which freeze.

Tiny Gloo processes without DDP, so that two cores carry several runs at once. In the middle the watch is killed with SIGKILL
and started again with the same state file. A receiver counts what is reported: each frozen run once, no healthy one, and the end
of each hang.
"""

import contextlib
import http.server
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.table import HANGDOC
from hangdoc_trainer.offspring import Offspring, free_port

PROGRAM = Path(__file__).with_name("watch_day_run.py")
FREEZES = ("stopped", "left-early", "other-operation", "waits-for-nobody", "asleep")
_RESUMES = "stopped"
"""The only way to freeze that can be undone. Some of these runs continue afterwards."""


@dataclass(frozen=True)
class Plan:
    """How long the day is. All times in seconds."""

    runs: int = 60
    every: float = 12.0
    healthy_for: float = 45.0
    frozen_for: float = 40.0
    looks: int = 5
    """A frozen run lasts for at least so many looks, which takes longer on a busy machine, where the watch (nice 19) is slow."""
    at_most: float = 240.0
    patience: float = 5.0
    interval: float = 3.0
    killed_after: float = 0.5
    """When the watch is killed, as a part of the day."""


@dataclass
class Run:
    """One run of two ranks, and what happened to it."""

    number: int
    kind: str
    """`healthy`, or how it freezes."""
    port: int
    offspring: Offspring = field(default_factory=Offspring)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    froze_at: float | None = None
    looks_then: int = 0
    end_at: float = 0.0
    resumed: bool = False
    resumed_at: float | None = None
    resumed_looks: int = 0
    over_at: float | None = None


class Receiver:
    """Takes the events of the web hook."""

    def __init__(self) -> None:
        self.events: list[tuple[float, dict[str, object]]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.events.append((time.monotonic(), document["event"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class Watched:
    """The watch, which may be killed and restarted, and its resource use."""

    def __init__(self, folder: Path, url: str, plan: Plan) -> None:
        self.folder = folder
        self.looks = self._looks = 0
        self._port = free_port()
        self._command = (
            HANGDOC, "watch", "--keep", "--state", str(folder / "state"), "-o", str(folder / "evidence"), "--keep-bytes", "2M",
            "--webhook", url, "--patience", f"{plan.patience:g}", "--interval", f"{plan.interval:g}",
            "--metrics", str(self._port),
        )  # fmt: skip
        self.log = (folder / "log").open("ab")
        self.megabytes: list[list[tuple[float, float]]] = []
        self.cpu_seconds = 0.0
        self.start()

    def start(self) -> None:
        # A separate session, like a service. Otherwise its nice value would count only against the ranks (sched(7), autogroup).
        self.child = subprocess.Popen(self._command, stdout=self.log, stderr=self.log, start_new_session=True)
        self.megabytes.append([])
        self._cpu = 0.0

    def measure(self, now: float) -> None:
        if self.child.poll() is not None:
            raise RuntimeError(f"the watch has ended: {(self.folder / 'log').read_text()[-2000:]}")
        with contextlib.suppress(OSError, ValueError):
            page = urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5).read().decode()
            looks = next(
                int(float(line.split()[1])) for line in page.splitlines() if line.startswith("hangdoc_looks_total ")
            )
            self.looks, self._looks = (
                self.looks + max(0, looks - self._looks),
                looks,
            )  # after a restart it continues from the saved count
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
            self.megabytes[-1].append((now, pages * os.sysconf("SC_PAGE_SIZE") / 1e6))
            fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
            self._cpu = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.cpu_seconds += self._cpu
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@dataclass(frozen=True)
class Result:
    """The results of the day."""

    frozen: int
    healthy: int
    missed: tuple[str, ...]
    repeated: tuple[str, ...]
    false: tuple[str, ...]
    unresolved: tuple[str, ...]
    wrong_endings: tuple[str, ...]
    seconds_to_report: tuple[float, ...]
    """Seconds from the freeze to the message, including the patience."""
    overlapping: int
    fifths: tuple[tuple[float, ...], ...]
    """Median megabytes in each fifth of the time of each process of the watch."""
    megabytes: float
    cores: float
    evidence_bytes: int
    minutes: float

    @property
    def right(self) -> bool:
        """Whether no hang was missed, repeated or invented."""
        return not (self.missed or self.repeated or self.false or self.unresolved or self.wrong_endings)


def day(plan: Plan, seed: int = 16) -> Result:
    """Run the day. Ends all processes that it started."""
    chance = random.Random(seed)  # noqa: S311
    kinds = ["healthy" if number % 3 else FREEZES[number // 3 % len(FREEZES)] for number in range(plan.runs)]
    chance.shuffle(kinds)
    waiting = [Run(number, kind, free_port()) for number, kind in enumerate(kinds)]
    runs, done = list(waiting), []
    alive: list[Run] = []
    receiver, most = Receiver(), 0
    with tempfile.TemporaryDirectory() as name:
        watched = Watched(Path(name), receiver.url, plan)
        began = time.monotonic()
        killed = False
        try:
            while waiting or alive:
                now = time.monotonic() - began
                if waiting and now >= plan.every * (plan.runs - len(waiting)):
                    alive.append(_start(waiting.pop(0), plan, Path(name)))
                for run in list(alive):
                    if _is_over(run, plan, Path(name), watched.looks):
                        alive.remove(run)
                        done.append(run)
                most = max(most, len(alive))
                watched.measure(now)
                if not killed and now > plan.killed_after * plan.every * plan.runs:
                    killed = True
                    watched.kill()
                    watched.start()
                time.sleep(0.5)
            _until_resolved(receiver, [run for run in runs if run.kind != "healthy"])
        finally:
            watched.kill()
            for run in runs:
                run.offspring.end()
                for child in run.children:
                    child.wait()
            if (log := os.environ.get("WATCH_DAY_LOG")) is not None:
                Path(log).write_bytes((Path(name) / "log").read_bytes())
        evidence = sum(path.stat().st_size for path in (Path(name) / "evidence").iterdir())
        return _judged(runs, receiver, watched, most, evidence, time.monotonic() - began)


def _start(run: Run, plan: Plan, folder: Path) -> Run:
    for rank in range(2):
        environment = {
            **os.environ, **run.offspring.mark, "OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(run.port),
            "READY": str(folder / f"run-{run.number}-{rank}"),
        }  # fmt: skip
        command = (sys.executable, str(PROGRAM), run.kind, f"{plan.healthy_for:g}")
        with (folder / f"run-{run.number}.log").open("ab") as log:
            # A separate session, as that of the watch: nice 10 beside busy programs would be too little to start.
            child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        run.children.append(child)
    run.end_at = time.monotonic() + plan.healthy_for + plan.at_most
    return run


def _is_over(run: Run, plan: Plan, folder: Path, looks: int) -> bool:
    """Do the next thing that is due for a run: freeze a rank with a signal, continue it, or end the run."""
    now = time.monotonic()
    if run.kind != "healthy" and run.froze_at is None and (folder / f"run-{run.number}-1").exists():
        if run.kind == "stopped":
            run.children[1].send_signal(signal.SIGSTOP)
        run.froze_at, run.looks_then, run.end_at = now, looks, now + plan.at_most
    if (
        run.froze_at is not None and run.resumed_at is None
        and now - run.froze_at >= plan.frozen_for and looks - run.looks_then >= plan.looks
    ):  # fmt: skip
        run.end_at = min(run.end_at, now)
    if run.resumed_at is not None and now - run.resumed_at >= 10 and looks - run.resumed_looks >= plan.looks:
        run.end_at = now
    resumes = run.kind == _RESUMES and run.number % 2 == 0
    if run.froze_at is not None and not run.resumed and now >= run.end_at and resumes:
        run.children[1].send_signal(signal.SIGCONT)
        run.resumed_looks, run.resumed_at = looks, now
        run.resumed, run.end_at = True, now + plan.at_most
        return False
    if all(child.poll() is not None for child in run.children) or now >= run.end_at:
        run.offspring.end()
        for child in run.children:
            child.wait()
        run.over_at = now
        return True
    return False


def _until_resolved(receiver: Receiver, frozen: list[Run], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended = {
            str(event["job"]).rpartition(":")[2] for _, event in list(receiver.events) if event["kind"] == "resolved"
        }
        if {str(run.port) for run in frozen} <= ended:
            return
        time.sleep(0.5)


def _judged(runs: list[Run], receiver: Receiver, watched: Watched, most: int, evidence: int, seconds: float) -> Result:
    ids = Counter(str(event["id"]) for _, event in receiver.events if event["kind"] == "hang")
    by_port: dict[str, list[tuple[float, dict[str, object]]]] = {}
    for at, event in receiver.events:
        by_port.setdefault(str(event["job"]).rpartition(":")[2], []).append((at, event))
    missed, repeated, false, unresolved, endings, took = [], [], [], [], [], []
    for run in runs:
        events = by_port.get(str(run.port), [])
        hangs = [(at, event) for at, event in events if event["kind"] == "hang"]
        resolved = [event for _, event in events if event["kind"] == "resolved"]
        name = f"run {run.number} ({run.kind})"
        if run.kind == "healthy":
            false += [f"{name}: {event['code']} {event['summary']}" for _, event in hangs]
            continue
        if not hangs:
            missed.append(name)
            continue
        if len(hangs) > 1 or ids[str(hangs[0][1]["id"])] > 1:
            repeated.append(name)
        took.append(hangs[0][0] - (run.froze_at or 0.0))
        if [event["id"] for event in resolved] != [hangs[0][1]["id"]]:
            unresolved.append(name)
        elif resolved[0]["ending"] != ("goes-on" if run.resumed else "ended"):
            endings.append(f"{name}: {resolved[0]['ending']}")
    life = [_fifths([megabytes for _, megabytes in one]) for one in watched.megabytes if len(one) >= 20]
    return Result(
        frozen=sum(run.kind != "healthy" for run in runs),
        healthy=sum(run.kind == "healthy" for run in runs),
        missed=tuple(missed), repeated=tuple(repeated), false=tuple(false), unresolved=tuple(unresolved),
        wrong_endings=tuple(endings), seconds_to_report=tuple(took), overlapping=most, fifths=tuple(life),
        megabytes=max((megabytes for one in watched.megabytes for _, megabytes in one), default=0.0),
        cores=watched.cpu_seconds / seconds, evidence_bytes=evidence, minutes=seconds / 60,
    )  # fmt: skip


def _fifths(values: list[float]) -> tuple[float, ...]:
    size = len(values) // 5
    return tuple(statistics.median(values[at * size : (at + 1) * size]) for at in range(5))


def watch_day(plan: Plan | None = None) -> bool:
    """Print the results of a day. Returns whether all was right."""
    result = day(plan or Plan())
    took = sorted(result.seconds_to_report)
    print(
        f"{result.frozen + result.healthy} runs in {result.minutes:.1f} min, up to {result.overlapping} at once. The watch was "
        f"killed and restarted once. {result.frozen} runs froze: {len(took)} reported, {len(result.repeated)} reported twice, "
        f"{len(result.unresolved)} without a report of their end, {len(result.wrong_endings)} with a wrong one. "
        f"{len(result.false)} of {result.healthy} healthy runs were reported.\n"
        f"from the freeze to the message: median {statistics.median(took or [0]):.1f} s, longest {max(took, default=0):.1f} s\n"
        f"the watch: {result.megabytes:.0f} MB at most; median of each fifth of its time: "
        f"{'; '.join(' '.join(f'{one:.0f}' for one in life) for life in result.fifths)} MB; {result.cores:.3f} cores; "
        f"{result.evidence_bytes / 1e6:.2f} MB of evidence (bound 2.1)"
    )
    for what in ("missed", "repeated", "false", "unresolved", "wrong_endings"):
        for line in getattr(result, what):
            print(f"  {what}: {line}")
    return result.right


if __name__ == "__main__":  # python -m bench.watch_day [RUNS EVERY HEALTHY_SECONDS FROZEN_SECONDS]
    numbers = [float(word) for word in sys.argv[1:]]
    plan = Plan(int(numbers[0]), *numbers[1:]) if numbers else Plan()
    sys.exit(0 if watch_day(plan) else 1)
