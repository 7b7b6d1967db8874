"""The raw facts about processes as text: stacks, system calls, sockets with their other ends, shared memory, pipes."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SHARED = "/dev/shm"  # noqa: S108 - what is there is only read


def facts(roles: dict[str, int], py_spy: Path) -> str:
    """What /proc, ss and py-spy say about each process of the namespace. Those without a role have no stacks."""
    names = {pid: role for role, pid in roles.items()}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    lines: list[str] = []
    for pid in sorted(pids):
        lines += _process(pid, names.get(pid), py_spy)
    lines += ["", "=== the last 64 bytes of shared memory (vLLM's rings have their written and read flags at the end)"]
    for memory in sorted(Path(_SHARED).iterdir()):
        with contextlib.suppress(OSError), memory.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 64, 0))
            lines.append(f"{memory} {size} bytes: {file.read().hex(' ', 1)}")
    for title, command in (("unix sockets", ["ss", "-xpn"]), ("tcp sockets", ["ss", "-tapn"])):
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines += ["", f"=== {title}: {' '.join(command)}", *(line for line in text.splitlines() if "pid=" in line)]
    return "\n".join(lines) + "\n"


def _process(pid: int, role: str | None, py_spy: Path) -> Iterator[str]:
    home = Path("/proc") / str(pid)
    with contextlib.suppress(OSError, IndexError):
        words = (home / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        parent = _status(home, "PPid")
        yield ""
        yield f"=== pid {pid} ({role or 'no role'}), parent {parent}: {words[:300]}"
        yield f"state: {_status(home, 'State')}"
        for task in sorted((home / "task").iterdir(), key=lambda entry: int(entry.name)):
            name, wait, call = (_read(task / file) for file in ("comm", "wchan", "syscall"))
            yield f"  thread {task.name} {name:<16} state {_status(task, 'State')} wchan {wait} syscall {call}"
        for fd in sorted((home / "fd").iterdir(), key=lambda entry: int(entry.name)):
            target = os.readlink(fd)
            if not target.startswith(("/dev/null", "/dev/urandom")):
                yield f"  fd {fd.name} -> {target}"
        mapped = {line.split(maxsplit=5)[5] for line in _read(home / "maps").splitlines() if _SHARED in line}
        yield from (f"  maps {name}" for name in sorted(mapped))
        if role is not None:
            command = [str(py_spy), "dump", "--pid", str(pid), "--nonblocking"]
            dump = subprocess.run(command, capture_output=True, text=True, check=False)
            yield from (f"  | {line}" for line in (dump.stdout + dump.stderr).splitlines())


def _status(home: Path, field: str) -> str:
    for line in _read(home / "status").splitlines():
        if line.startswith(f"{field}:"):
            return line.partition(":")[2].strip()
    return "?"


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        return f"({error.strerror})"
