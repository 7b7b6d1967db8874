"""Locks and semaphores in memory that processes share, such as those of Python's multiprocessing, and who shares it.

Source: futex(2) and proc_pid_maps(5). The kernel knows who waits for a futex, but not who will wake it.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from hangdoc.observe.kernel import file_holders
from hangdoc.procfs import ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import AwaitedFile, Holder

_MOST_BYTES = 128 << 20
"""Of the maps of all processes of one user. A rank has 0.3 to 1 MB."""
_PRIVATE = 128
_COMMANDS = 127
_WAITS = frozenset({0, 9})
"""FUTEX_WAIT, FUTEX_WAIT_BITSET."""
_SHARED = regex(rb"^([0-9a-f]+)-([0-9a-f]+) rw-s \S+ (\S+) ([1-9]\d*) +((?!/dev/(?!(?:shm|hugepages)/|zero\b))\S.*)$")
"""Not the memory of a device: all processes that use a card map /dev/nvidiactl, and see nothing of each other."""
_File = tuple[bytes, int]
"""Device, as `major:minor`, and inode: files of two file systems may have one inode number."""


def awaited(proc: ProcFS, pid: int, arguments: list[int]) -> AwaitedFile | None:
    """The shared memory with the futex that a thread waits for; None for a futex of its own process. Raises ProcError."""
    address, command = arguments[:2]
    if command & _PRIVATE or command & _COMMANDS not in _WAITS:
        return None
    for line in proc.read(f"{pid}/maps").splitlines():
        if (match := _SHARED.match(line)) is not None and int(match[1], 16) <= address < int(match[2], 16):
            name = match[5].decode("utf-8", "replace").removesuffix(" (deleted)")
            return AwaitedFile(kind="shared-memory", name=name, inode=int(match[4]))
    return None


def holders_of(proc: ProcFS, pid: int, inode: int) -> tuple[Holder, ...] | None:
    """The other processes that share the memory; None if there is none, but some processes could not be read."""
    mapped, complete = _read_mapped(proc, file_holders.period())
    own = (file for file, pids in mapped.items() if file[1] == inode and pid in pids)
    holders = file_holders.read_holders(
        proc, dict.fromkeys(other for file in own for other in mapped[file] if other != pid)
    )
    return holders if holders or complete else None


def sharers_of(proc: ProcFS, pid: int) -> tuple[Holder, ...]:
    """The first few other processes that share memory with a process, as far as they can be read."""
    mapped, _ = _read_mapped(proc, file_holders.period())
    shared = (pids for pids in mapped.values() if pid in pids)
    return file_holders.read_holders(proc, dict.fromkeys(other for pids in shared for other in pids if other != pid))


def shared_files(maps: bytes) -> set[_File]:
    """The files of a process's maps that it has mapped for writing, so that others see what it writes."""
    return {(match[3], int(match[4])) for line in maps.splitlines() if (match := _SHARED.match(line)) is not None}


@lru_cache(1)
def _read_mapped(proc: ProcFS, period: int) -> tuple[Mapping[_File, tuple[int, ...]], bool]:
    """The processes that have each file mapped for writing, and whether all processes could be read."""
    mapped: dict[_File, list[int]] = defaultdict(list)
    complete = proc.shows_all()
    for pid, maps in file_holders.each_of_host(proc, lambda pid: proc.read(f"{pid}/maps"), _MOST_BYTES):
        if maps is None:
            complete = False
            continue
        for file in shared_files(maps):
            mapped[file].append(pid)
    return {file: tuple(pids) for file, pids in mapped.items()}, complete
