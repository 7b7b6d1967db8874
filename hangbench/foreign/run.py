"""Runs one situation of a foreign program in separate namespaces, waits until it has reached its state, and takes one look."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

from hangbench.foreign.program import Program, Situation
from hangdoc_trainer.offspring import free_port

ROOT = Path(__file__).parents[2]
WORK = Path(os.environ.get("HANGDOC_FOREIGN", Path.home() / ".cache" / "hangdoc-foreign"))
"""The folder with a virtual environment and the inputs of each program."""
PATIENCE = 10
_QUIET = PATIENCE + 2.0
_START_BOUND, _SETTLE_BOUND = 480.0, 300.0


def isolated(program: Program, situation: Situation, bundle: Path) -> dict[str, object]:
    """Run `inside` in a child with separate pid, mount and /tmp namespaces, and return its result.

    Raises RuntimeError with the output of the child if the program did not reach its state.
    """
    result = bundle.with_suffix(".result.json")
    result.unlink(missing_ok=True)
    command = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c",
               'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh", sys.executable, "-m", "hangbench.foreign", "--inside",
               f"{program.name}/{situation.name}", "--bundle", str(bundle)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, stdin=subprocess.DEVNULL)
    if not result.exists():
        raise RuntimeError((done.stdout + done.stderr)[-4000:])
    seen: dict[str, object] = json.loads(result.read_text())
    return seen


def inside(program: Program, situation: Situation, bundle: Path) -> dict[str, object]:
    """Start the program, wait, and look. Returns the diagnosis, and the steps before and after the look."""
    log = bundle.with_suffix(".log")
    out = Path("/tmp/foreign")  # noqa: S108 - a file system of this run only
    out.mkdir()
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1",
        "IN": str(WORK / "in" / (program.inputs or "none")), "OUT": str(out), "PORT": str(free_port()), "PORT2": str(free_port()),
        "PATH": f"{WORK / program.install[0]}/bin:{os.environ['PATH']}", **program.environment,
    }  # fmt: skip
    with log.open("wb") as sink:
        children = [
            subprocess.Popen(
                ["bash", "-c", line],
                env=environment,
                cwd=out,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for line in situation.commands
        ]
    progress = re.compile(program.progress.encode())

    def steps() -> int:
        return len(progress.findall(log.read_bytes()))

    if situation.healthy or situation.act:
        until = time.monotonic() + _START_BOUND
        while steps() < situation.begun:
            if time.monotonic() > until or not _others():
                raise RuntimeError(f"did not start:\n{log.read_text('utf-8', 'replace')[-3000:]}")
            time.sleep(0.1)
    if situation.act:
        ranks = _ranks()
        while any(name not in ranks for name in re.findall(r"\bRANK\d+", situation.act)) and time.monotonic() < until:
            time.sleep(0.5)
            ranks = _ranks()
        subprocess.run(["bash", "-c", situation.act], env={**environment, **ranks}, check=True, timeout=60)
    settled = True if situation.healthy and not situation.act else settle(log, quiet=not situation.healthy)
    if not _others():
        raise RuntimeError(f"ended before the look:\n{log.read_text('utf-8', 'replace')[-3000:]}")
    before = steps()
    began = time.monotonic()
    look = subprocess.run(
        [sys.executable, "-m", "hangdoc", "diagnose", "--json", "--save", str(bundle), "--patience", str(PATIENCE)],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    seconds = time.monotonic() - began
    after = before
    until = time.monotonic() + (30 if situation.healthy else 0)
    while situation.healthy and after <= before + 1 and time.monotonic() < until:
        time.sleep(0.2)
        after = steps()
    ended = [child.poll() for child in children]
    return {
        "document": json.loads(look.stdout) if look.stdout.strip() else None,
        "stderr": look.stderr[-2000:], "exit": look.returncode,
        "seconds": round(seconds, 1), "settled": settled, "steps_before": before, "steps_after": after, "ended": ended,
    }  # fmt: skip


def _others() -> list[psutil.Process]:
    """All processes in this namespace except this one and its parent."""
    mine = {os.getpid(), os.getppid(), 1}
    return [p for p in psutil.process_iter() if p.pid not in mine and p.status() != psutil.STATUS_ZOMBIE]


def _ranks() -> dict[str, str]:
    """RANK0, RANK1 ...: the pids of processes with a rank in their environment. Parents precede their workers."""
    pids: dict[str, str] = {}
    for process in sorted(_others(), key=lambda p: (p.create_time(), p.pid)):
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if "RANK" in environment and "WORLD_SIZE" in environment:
            pids.setdefault(f"RANK{environment['RANK']}", str(process.pid))
    return pids


def settle(log: Path, *, quiet: bool) -> bool:
    """Wait until nothing is printed and no process works for a while. Returns whether that happened.

    On a busy machine a working process gets little CPU, so the measure is how often one of its threads wants to run (state R)
    or waits for a disk (D). Agents and monitoring threads poll, so up to a fifth of the readings may find one running.
    """
    until = time.monotonic() + (_SETTLE_BOUND if quiet else 4.0)
    readings: list[tuple[float, int, frozenset[int]]] = []
    while time.monotonic() < until:
        time.sleep(0.25)
        now = time.monotonic()
        readings.append((now, log.stat().st_size, _at_work()))
        recent = [reading for reading in readings if now - reading[0] <= _QUIET]
        busy_pids = [pid for _, _, busy in recent for pid in busy]
        most = max((busy_pids.count(pid) for pid in set(busy_pids)), default=0)
        if now - readings[0][0] > _QUIET + 5 and recent[0][1] == recent[-1][1] and most <= 0.2 * len(recent):
            return True
    return not quiet


def _at_work() -> frozenset[int]:
    """Pids with a thread that runs, wants to run, or waits for a disk."""
    pids = set()
    for process in _others():
        for task in Path(f"/proc/{process.pid}/task").glob("*/stat"):
            try:
                state = task.read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state in "RD":
                pids.add(process.pid)
    return frozenset(pids)


def prepare(program: Program) -> str:
    """Create the environment and the inputs if they are missing. Returns the package's version. Raises CalledProcessError."""
    WORK.mkdir(parents=True, exist_ok=True)
    venv, *packages = program.install
    home = WORK / venv
    if not (home / ".installed").exists():
        if not home.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        constraints = WORK / "constraints.txt"
        constraints.write_text("torch==2.13.0\n")
        pip = [f"{home}/bin/python", "-m", "pip", "install", "--quiet", "-c", str(constraints)]
        environment = {**os.environ, "DS_BUILD_OPS": "0"}
        subprocess.run([*pip, "torch", *packages], check=True, env=environment)
        if program.alone:
            subprocess.run([*pip, "--no-deps", *program.alone], check=True, env=environment)
        (home / ".installed").touch()
    if program.inputs and not (WORK / "in" / program.inputs).exists():
        subprocess.run([f"{home}/bin/python", str(Path(__file__).with_name("inputs.py")), program.inputs,
                        str(WORK / "in" / program.inputs)], check=True)  # fmt: skip
    ask = f"import importlib.metadata as m; print(m.version({program.package!r}))"
    return subprocess.run([f"{home}/bin/python", "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
