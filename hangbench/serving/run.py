"""Brings one system into one state, in namespaces of its own, and looks at it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hangbench.serving.facts import facts
from hangbench.serving.system import PROGRAMS, State, System
from hangdoc_trainer.offspring import free_port

ROOT = Path(__file__).parents[2]
START_SECONDS, TRAFFIC_SECONDS, STATE_SECONDS = 300.0, 8.0, 40.0
_NAMESPACES = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
_INIT = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && "$@"; exit $?'
"""bash stays process 1 of the namespace, because process 1 must collect orphans."""


def isolated(system: System, state: State, out: Path, hangdoc: Path) -> None:
    """Run `inside` in a child with pid, mount, /tmp and /dev/shm namespaces of its own."""
    command = [*_NAMESPACES, "bash", "-c", _INIT, "bash", sys.executable, "-m", "hangbench.serving",
               f"{system.name}/{state.name}", "--inside", "--out", str(out), "--hangdoc", str(hangdoc)]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL, timeout=1200)


def inside(system: System, state: State, out: Path, hangdoc: Path) -> None:
    """Start the system, bring it into the state, and look with several pids, and without one."""
    stem = out / f"{system.name}-{state.name}"
    work = Path("/tmp/serving")  # noqa: S108 - a file system of this run only
    work.mkdir()
    ready = work / "ready.json"
    words = {"python": str(system.python), "port": str(free_port()), "ready": str(ready), "programs": str(PROGRAMS)}
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1",
        "PATH": f"{system.python.parent}:{os.environ['PATH']}", **system.environment,
    }  # fmt: skip
    with stem.with_suffix(".log").open("wb") as log:

        def start(*command: str) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(command, env=environment, cwd=work, stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip

        server = start(*(word.format(**words) for word in system.command), *state.arguments)
        until = time.monotonic() + START_SECONDS
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{stem.name} did not start: see {stem}.log")
            time.sleep(0.1)
        document = json.loads(ready.read_text())
        roles: dict[str, int] = document["roles"]
        if missing := set(system.roles) - set(roles):
            raise RuntimeError(f"{stem.name} has no {', '.join(sorted(missing))}: see {stem}.log")

        def start_client(*arguments: str) -> "subprocess.Popen[bytes]":
            url = document["url"] + system.path
            return start(str(system.python), str(PROGRAMS / "client.py"), url, *arguments)

        warm_up = ("--times", "3", "--count", str(work / "warm-up"))
        if system.warm_up and not state.cold and start_client(system.warm_up, *warm_up).wait():
            raise RuntimeError(f"{stem.name} did not answer: see {stem}.log")
        counts = [work / f"count-{number}" for number in range(len(state.clients))]
        clients = [
            start_client(*client, "--count", str(count)) for client, count in zip(state.clients, counts, strict=True)
        ]
        time.sleep(TRAFFIC_SECONDS)
        if state.signal is not None:
            role, name = state.signal
            os.kill(roles[role], signal.Signals[name])
        began = time.monotonic()
        while time.monotonic() - began < STATE_SECONDS:
            time.sleep(0.5)
            for process in (server, *clients):
                process.poll()  # collects it if it has ended
        before = [_read(count) for count in counts]
        looks = []
        views: list[tuple[str, int | None]] = [(view, roles[role]) for view, role in system.looks]
        for view, pid in [*views, ("host", None)]:
            looks.append({"view": view, **_look(hangdoc, pid, stem.with_name(f"{stem.name}-{view}.hangdoc"))})
        after = [_read(count) for count in counts]
        text = facts(roles, hangdoc.with_name("py-spy"))
        stem.with_suffix(".facts.txt").write_text(text)
        if state.name == "idle":
            (out.parent / f"facts-{system.name}.txt").write_text(text)
    stem.with_suffix(".result.json").write_text(
        json.dumps(
            {"roles": roles, "answers_before": before, "answers_after": after, "looks": looks,
             "load": os.getloadavg()[0], "server_ended": server.poll()},
            indent=1,
        )
    )  # fmt: skip


def _read(count: Path) -> str:
    return count.read_text().strip() if count.exists() else ""


def _look(hangdoc: Path, pid: int | None, bundle: Path) -> dict[str, Any]:
    began = time.monotonic()
    command = [str(hangdoc), "diagnose", "--json", "--save", str(bundle), *([] if pid is None else ["--pid", str(pid)])]
    look = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    seconds = round(time.monotonic() - began, 1)
    document = json.loads(look.stdout) if look.stdout.strip() else None
    if document is not None:
        bundle.with_suffix(".json").write_text(look.stdout)
    return {
        "pid": pid,
        "exit": look.returncode,
        "seconds": seconds,
        "stderr": look.stderr[-1500:],
        "document": document,
    }
