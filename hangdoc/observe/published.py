"""Files that a trainer's watchdog leaves for readers outside, as the trainer's own mount and pid namespaces name them."""

from pathlib import Path

from hangdoc import beacon
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.observe.scene import Target


def published(proc: ProcFS, target: Target, suffix: str) -> list[tuple[Path, int]]:
    """(path, the process's own pid in its namespace) of each place where `<pid><suffix>` of a process may lie. What is read
    there is untrusted."""
    environment = target.environment if isinstance(target.environment, dict) else {}
    try:
        status = proc.status(str(target.pid))
        uid = int(status["Uid"].split()[0])
        inner_pid = int(status.get("NSpid", str(target.pid)).split()[-1])
    except (ProcError, KeyError, ValueError, IndexError):
        return []
    folders = [beacon.directory(uid, runtime) for runtime in (environment.get("XDG_RUNTIME_DIR"), None)]
    return [
        (Path(f"{proc.root}/{target.pid}/root{folder}") / f"{inner_pid}{suffix}", inner_pid)
        for folder in dict.fromkeys(folders)
    ]
