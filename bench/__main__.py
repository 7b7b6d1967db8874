"""Measures everything and prints a table of ratios.

python -m bench [beyond-window] [start-up] [slow-down] [beat] [watched-steps] [last-dump]
                [top-keys] [top-delayed] [top-slow-down] [ranks] [hosts] [ship] [fleet] [pauses] [page] [polls] [priority]
                [one-look] [recorder] [watch-day]

`python -m bench.observers [LOOKS]` is a soak of its own: many observers of one run.
"""

import compileall
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hangdoc
from bench import delayed, fleet, one_look, page, pauses, polls, priority, recorder, scale, ship, top, watch_day
from bench.table import HANGDOC, PY_SPY, row, seconds, step
from hangdoc.watchdog import Watchdog
from hangdoc_trainer import corpus
from hangdoc_trainer.offspring import free_port
from hangdoc_trainer.scenarios import SMALL, Node, Scenario, Started

_AT_REST_SECONDS = 1.5


def beyond_window(rounds: int = 7) -> None:
    """Time of `diagnose --window 1` on 8 hung ranks, without its window, compared with py-spy in a loop plus a bare
    interpreter. And the whole time of `diagnose` when they have been at rest for a while."""
    scenario = Scenario(
        "bench", "8 ranks, one of which skips a broadcast", (Node(ranks=8),),
        ("--num-iterations", "100000", "--fault", "skipped-collective:1:3"),
    )  # fmt: skip
    bare = "import psutil, rich.console, msgspec"
    with Started(scenario) as run:
        pids = [str(pid) for pid in run.rank_pids().values()]
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(seconds(HANGDOC, "diagnose", "--window", "1", "--pid", str(run.pids[0])) - 1.0)
            loop = sum(seconds(PY_SPY, "dump", "--locals", "--pid", pid) for pid in pids)
            theirs.append(loop + seconds(sys.executable, "-c", bare))
        row("diagnose of 8 hung ranks beyond its 1 s window", ours, theirs, "2, and 0.5 s")
        whole = []
        for _ in range(rounds):
            time.sleep(_AT_REST_SECONDS)  # py-spy and diagnose wake the threads
            whole.append(seconds(HANGDOC, "diagnose", "--pid", str(run.pids[0])))
    row("diagnose of 8 hung ranks at rest, with its window", whole, theirs, "1.2, and 0.5 s")


def start_up(rounds: int = 15) -> None:
    """Time of `hangdoc --version` compared with an interpreter that does nothing."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(HANGDOC, "--version"))
        theirs.append(seconds(sys.executable, "-c", "pass"))
    row("hangdoc --version against python -c pass", ours, theirs, "5")
    portable = Path("dist/hangdoc.pyz")
    if not portable.exists():
        print("hangdoc.pyz is not measured: make portable")
        return
    cold, warm, by_script = [], [], []
    with tempfile.TemporaryDirectory() as cache:
        where = ("env", f"XDG_CACHE_HOME={cache}")
        start = (*where, sys.executable, str(portable), "--version")
        for _ in range(rounds):
            cold.append(seconds(*start))
            warm.append(seconds(*start))
            by_script.append(seconds(*where, "sh", str(portable), "--version"))
            shutil.rmtree(Path(cache, "hangdoc"))
    row("hangdoc.pyz --version, cold, against hangdoc --version", cold, ours, "")
    row("hangdoc.pyz --version, warm, against hangdoc --version", warm, ours, "0.5 s")
    row("sh hangdoc.pyz --version, warm, against hangdoc --version", by_script, ours, "0.5 s")


def slow_down(rounds: int = 5, length: float = 8.0) -> None:
    """Seconds per step of a healthy run with one diagnose per second, compared with none, and with the same diagnose of another
    run. The second ratio shows the cost of a look for the ranks themselves, without the CPU time that hangdoc uses."""
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(10000)"], env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    )
    try:
        for ranks in (1, os.cpu_count() or 2):
            with Started(Scenario("bench", "a healthy run", (Node(ranks=ranks),), frozen=False)) as run:
                quiet, beside, watched = [], [], []
                for _ in range(rounds):
                    quiet.append(_seconds_per_step(run, length, None))
                    beside.append(_seconds_per_step(run, length, bystander.pid))
                    watched.append(_seconds_per_step(run, length, run.pids[0]))
            who = f"step of {ranks} healthy rank(s) on {os.cpu_count()} cores"
            row(f"{who}, 1 diagnose/s compared with none", watched, quiet, "1.02")
            row(f"{who}, compared with 1/s of another run", watched, beside, "1.02")
    finally:
        bystander.kill()
        bystander.wait()


def _seconds_per_step(run: Started, length: float, diagnosed: int | None) -> float:
    first, began = step(run), time.perf_counter()
    children = []
    while time.perf_counter() - began < length:
        if diagnosed is not None:
            command = [HANGDOC, "diagnose", "--pid", str(diagnosed)]
            children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(1.0)
    elapsed = time.perf_counter() - began
    per_step = elapsed / (step(run) - first)
    for child in children:
        child.wait()
    return per_step


def beat(rounds: int = 7, beats: int = 200_000) -> None:
    """Time of a watchdog's beat compared with `time.monotonic_ns()`, and memory growth over ten million beats."""
    ours, theirs = [], []
    with Watchdog(timeout=3600) as watchdog:
        for _ in range(rounds):
            began = time.perf_counter()
            for n in range(beats):
                watchdog.beat(n, batches=n)
            ours.append((time.perf_counter() - began) * 1e6 / beats)
            began = time.perf_counter()
            for _ in range(beats):
                time.monotonic_ns()
            theirs.append((time.perf_counter() - began) * 1e6 / beats)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for n in range(10_000_000):
            watchdog.beat(n, batches=n)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    row("one beat, in microseconds, against time.monotonic_ns()", ours, theirs, "1 us")
    print(f"memory growth over 10,000,000 beats: {grown} KiB")


def watched_steps() -> None:
    """Steps of the trainer with a watchdog, its hooks and a beat per step, compared with those without, in one run of two
    ranks."""
    with tempfile.TemporaryDirectory() as folder:
        corpus.make(Path(folder), 8, groups=2, rows=1, size=300)
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}",
             str(Path(__file__).with_name("steps.py")), *SMALL, "--num-iterations=1000000"],
            env={**os.environ, "NANOCHAT_DATA_DIR": folder, "OMP_NUM_THREADS": "1", "PYTHONPATH": "."},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    pairs = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("pair ")]
    ours, theirs = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    row("step of 2 healthy ranks with the watchdog, against without", ours, theirs, "1.001")


def last_dump(rounds: int = 3, ranks: int = 8, patience: float = 3.0) -> None:
    """Time from the deadline to the stacks of all 8 ranks, compared with py-spy in a loop, and to the verdict in the log."""
    scenario = Scenario(
        "bench", "8 ranks, one of which skips a broadcast", (Node(ranks=ranks),),
        ("--num-iterations", "100000", "--fault", "skipped-collective:1:3", "--watchdog", str(patience)),
    )  # fmt: skip
    dumps, verdicts, theirs = [], [], []
    for _ in range(rounds):
        with Started(scenario) as run:
            while run.log().count("full report") < ranks:
                time.sleep(0.05)
            told = time.time()
            beats = [beat.monotonic_ns / 1e9 for beat in run.beats()]
            deadline = min(beats) + patience + time.time() - time.monotonic()
            stacks = [path.stat().st_mtime for path in run.folder.glob("hangdoc-*/rank-*.stacks.txt")]
            if len(stacks) != ranks:
                raise SystemExit(f"{len(stacks)} of {ranks} ranks have dumped")
            dumps.append(max(stacks) - deadline)
            verdicts.append(told - deadline)
            theirs.append(sum(seconds(PY_SPY, "dump", "--pid", str(pid)) for pid in run.rank_pids().values()))
    row("8 ranks from the deadline to the last rank's stacks, against py-spy in a loop", dumps, theirs, "5 s")
    row("8 ranks from the deadline to the verdict in every log, against the same", verdicts, theirs, "5 s")


def main(chosen: list[str]) -> None:
    """Run the chosen measurements, or all of them."""
    # pip compiles what it installs. A checkout may not be compiled: PYTHONDONTWRITEBYTECODE, for example.
    compileall.compile_dir(Path(hangdoc.__file__).parent, quiet=1)
    for name, measure in (
        ("beyond-window", beyond_window),
        ("start-up", start_up),
        ("slow-down", slow_down),
        ("beat", beat),
        ("watched-steps", watched_steps),
        ("last-dump", last_dump),
        ("top-keys", top.keys),
        ("top-delayed", delayed.delayed),
        ("top-slow-down", top.slow_down),
        ("ranks", scale.ranks),
        ("hosts", scale.hosts),
        ("ship", ship.ship),
        ("fleet", fleet.fleet),
        ("pauses", pauses.pauses),
        ("page", page.pages),
        ("polls", polls.polls),
        ("priority", priority.priority),
        ("one-look", one_look.one_look),
        ("recorder", recorder.recorder),
        ("watch-day", watch_day.watch_day),
    ):
        if not chosen or name in chosen:
            measure()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the ranks must end with this process
    main(sys.argv[1:])
