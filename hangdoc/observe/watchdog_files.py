"""Files that a trainer's watchdog writes for hangdoc, found through the trainer's mount and pid namespaces."""

import time
from pathlib import Path

from hangdoc import beacon
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Unavailable


def watchdog_files(
    proc: ProcFS, pid: int, environment: dict[str, str] | Unavailable, suffix: str
) -> list[tuple[Path, int]]:
    """(path, the process's pid in its own pid namespace) of each place where `<pid><suffix>` of a process may be. The content of
    these files is untrusted."""
    known = environment if isinstance(environment, dict) else {}
    try:
        owner, inside = proc.fields(str(pid), "Uid", "NSpid")
        uid = int((owner or "").split()[0])
        inner_pid = int((inside or str(pid)).split()[-1])
    except (ProcError, ValueError, IndexError):
        return []
    folders = [beacon.directory(uid, runtime) for runtime in (known.get("XDG_RUNTIME_DIR"), None)]
    return [
        (Path(f"{proc.root}/{pid}/root{folder}") / f"{inner_pid}{suffix}", inner_pid)
        for folder in dict.fromkeys(folders)
    ]


def beat_of(proc: ProcFS, pid: int, environment: dict[str, str] | Unavailable) -> beacon.Beat | None:
    """The last beat of a process; None if it has no beacon of its own."""
    for path, inner_pid in watchdog_files(proc, pid, environment, beacon.SUFFIX):
        for _ in range(3):  # the trainer may be writing a beat right now
            try:
                with path.open("rb") as file:
                    raw = file.read(beacon.SIZE)
            except OSError:
                break
            beat = beacon.parse(raw)
            if beat is not None and beat.pid == inner_pid and _is_from(proc, pid, beat):
                return beat
    return None


def _is_from(proc: ProcFS, pid: int, beat: beacon.Beat) -> bool:
    """Whether the beat is younger than the process. A killed process leaves its beacon, and its pid may be reused."""
    try:
        started = proc.stat(str(pid)).start_ticks / proc.ticks_per_second
    except ProcError:
        return False
    ago = (time.monotonic_ns() - beat.monotonic_ns) / 1e9
    return -1 < ago < time.clock_gettime(time.CLOCK_BOOTTIME) - started + 1
