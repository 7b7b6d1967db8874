"""Files that a trainer's watchdog writes for hangdoc, found through the trainer's mount and pid namespaces."""

import contextlib
import functools
import time
from collections.abc import Iterator

from hangdoc import beacon
from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.procfs import ProcError, ProcFS, inner_pid
from hangdoc.snapshot import Unavailable

_TRIES = 3


def read_watchdog_files(
    proc: ProcFS, pid: int, start_ticks: int, environment: dict[str, str] | Unavailable, suffix: str, most: int
) -> Iterator[bytes]:
    """The first `most` bytes of each file `<pid><suffix>` that the watchdog of a process may have written, if nobody but its
    owner or root can have put it there. The content is untrusted all the same."""
    variables = environment if isinstance(environment, dict) else {}
    try:
        name = f"{inner_pid(proc, pid)}{suffix}"
        with files_of(proc, pid, start_ticks) as files:
            uid = files.view.rights.uid
            for runtime in dict.fromkeys((variables.get("XDG_RUNTIME_DIR"), None)):
                folder = str(beacon.directory(uid, runtime))
                with contextlib.suppress(OSError):
                    yield files.run(
                        functools.partial(Root.read_private, folder=folder, name=name, owner=uid, most=most)
                    )
    except (OSError, ProcError):
        return


def beat_of(proc: ProcFS, pid: int, start_ticks: int, environment: dict[str, str] | Unavailable) -> beacon.Beat | None:
    """The last beat of a process; None if it has no beacon of its own."""
    for _ in range(_TRIES):
        torn = False
        for raw in read_watchdog_files(proc, pid, start_ticks, environment, beacon.SUFFIX, beacon.SIZE):
            beat = beacon.parse(raw)
            torn = torn or beat is None  # the trainer may be writing a beat right now
            if beat is not None and _is_from(proc, pid, beat):
                return beat
        if not torn:
            break
    return None


def _is_from(proc: ProcFS, pid: int, beat: beacon.Beat) -> bool:
    """Whether the process wrote the beat: it has its pid and is younger. A killed process leaves its beacon, and its pid may be
    reused."""
    try:
        if beat.pid != inner_pid(proc, pid):
            return False
        started = proc.stat(str(pid)).start_ticks / proc.ticks_per_second
    except ProcError:
        return False
    ago = (time.monotonic_ns() - beat.monotonic_ns) / 1e9
    return -1 < ago < time.clock_gettime(time.CLOCK_BOOTTIME) - started + 1
