"""Locks and semaphores in memory that processes share, such as those of Python's multiprocessing, and who shares it.

Source: futex(2) and proc_pid_maps(5). The kernel knows who waits for a futex, but not who will wake it.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from hangdoc.observe import holders
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import AwaitedFile, Holder

_PRIVATE = 128
_COMMANDS = 127
_WAITS = frozenset({0, 9})
"""FUTEX_WAIT, FUTEX_WAIT_BITSET."""
_SHARED = regex(rb"^([0-9a-f]+)-([0-9a-f]+) rw-s \S+ \S+ ([1-9]\d*) +(\S.*)$")


def awaited(proc: ProcFS, pid: int, arguments: list[int]) -> AwaitedFile | None:
    """The shared memory with the futex that a thread waits for; None for a futex of its own process. Raises ProcError."""
    address, command = arguments[:2]
    if command & _PRIVATE or command & _COMMANDS not in _WAITS:
        return None
    for line in proc.read(f"{pid}/maps").splitlines():
        if (match := _SHARED.match(line)) is not None and int(match[1], 16) <= address < int(match[2], 16):
            name = match[4].decode("utf-8", "replace").removesuffix(" (deleted)")
            return AwaitedFile(kind="shared-memory", name=name, inode=int(match[3]))
    return None


def holders_of(proc: ProcFS, pid: int, inode: int) -> tuple[Holder, ...] | None:
    """The other processes that share the memory; None if there is none, but some processes could not be read."""
    pids, complete = _mapped(proc, holders.period())
    found = holders.of(proc, (one for one in pids.get(inode, ()) if one != pid))
    return found if found or complete else None


@lru_cache(1)
def _mapped(proc: ProcFS, period: int) -> tuple[Mapping[int, tuple[int, ...]], bool]:
    """The processes that have each file mapped for writing, by its inode, and whether all processes could be read."""
    found: dict[int, list[int]] = defaultdict(list)
    complete = proc.shows_all()
    for pid in proc.pids():
        try:
            lines = proc.read(f"{pid}/maps").splitlines()
        except Gone:
            continue
        except ProcError:
            complete = False
            continue
        for inode in {int(match[3]) for line in lines if (match := _SHARED.match(line)) is not None}:
            found[inode].append(pid)
    return {inode: tuple(pids) for inode, pids in found.items()}, complete
