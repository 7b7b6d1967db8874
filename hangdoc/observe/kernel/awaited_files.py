"""What a thread waits for in its system call: a path, an open file, a pipe and the holders of its other end, sockets.

Only links, mount tables and a few bytes of memory are read. The file itself is never opened: its file system may be dead.
"""

import os
import posixpath
import stat
import struct
from collections.abc import Iterable

from hangdoc.observe.access.process_files import files_of
from hangdoc.observe.kernel import file_holders, shared_memory, system_calls
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import MOST_AWAITED_FILES, AwaitedFile, Holder

_LOCAL = frozenset({"ext4", "xfs", "btrfs", "overlay", "tmpfs", "ext3", "ext2", "zfs", "proc", "sysfs", "devtmpfs"})
_MAX_PATH = 512
_ACCESS_MODE = 0o3
_TIMER = "anon_inode:[timerfd]"
_SOCKET = regex(r"socket:\[(\d+)\]")


def awaited(proc: ProcFS, pid: int, call: str, arguments: list[int], *, search: bool) -> tuple[AwaitedFile, ...]:
    """The files that a system call waits for; empty for a call without files. `search` looks for the holders of the other end of
    a pipe, which reads all processes of the host.

    Raises ProcError or ValueError for what can't be read.
    """
    if call == system_calls.FUTEX:
        memory = shared_memory.awaited(proc, pid, arguments)
        return () if memory is None else (memory,)
    if call in system_calls.WITH_PATH:
        return (at_path(proc, pid, _read_path_at(proc, pid, arguments[system_calls.WITH_PATH[call]])),)
    descriptors: Iterable[int] = ()
    if call in system_calls.WITH_FILE:
        descriptors = (arguments[0],)
    elif call in system_calls.POLLS:
        descriptors = _read_polled(proc, pid, arguments[0], arguments[1])
    elif call in system_calls.SELECTS:
        descriptors = _read_selected(proc, pid, arguments[0], arguments[1])
    elif call in system_calls.EPOLLS:
        descriptors = _read_registered(proc, pid, arguments[0])
    files = []
    for descriptor in list(descriptors)[:MOST_AWAITED_FILES]:
        try:
            files.append(_read_descriptor(proc, pid, descriptor, call, search=search))
        except ProcError:
            continue
    return tuple(files)


def seconds_to_timer(proc: ProcFS, pid: int, files: tuple[AwaitedFile, ...]) -> float | None:
    """How long a thread sleeps that waits for a timer alone, in seconds (timerfd_create(2), proc_pid_fdinfo(5)). None for any
    other wait, and for a timer that is not set. Raises ProcError or ValueError for what can't be read."""
    if len(files) != 1 or files[0].name != _TIMER or files[0].descriptor is None:
        return None
    for line in proc.text(f"{pid}/fdinfo/{files[0].descriptor}").splitlines():
        if line.startswith("it_value:"):
            seconds, nanoseconds = line.partition(":")[2].strip(" ()").split(",")
            return (int(seconds) + int(nanoseconds) / 1e9) or None
    return None


def _read_path_at(proc: ProcFS, pid: int, address: int) -> str:
    """The path argument of a system call, made absolute with the process's working directory."""
    path = system_calls.memory(proc, pid, address, _MAX_PATH).split(b"\0", 1)[0].decode("utf-8", "replace")
    return posixpath.join(proc.link(f"{pid}/cwd"), path) if path and not path.startswith("/") else path


def _read_polled(proc: ProcFS, pid: int, address: int, count: int) -> list[int]:
    """The descriptors in an array of `struct pollfd` (poll(2))."""
    raw = system_calls.memory(proc, pid, address, 8 * min(count, MOST_AWAITED_FILES)) if count else b""
    return [fd for fd, _, _ in struct.iter_unpack("=ihh", raw[: len(raw) // 8 * 8]) if fd >= 0]


def _read_selected(proc: ProcFS, pid: int, highest: int, address: int) -> list[int]:
    """The descriptors in the read set of a select(2)."""
    if not address:
        return []
    raw = system_calls.memory(proc, pid, address, (min(highest, 1024) + 7) // 8)
    return [fd for fd in range(min(highest, 8 * len(raw))) if raw[fd // 8] >> fd % 8 & 1]


def _read_registered(proc: ProcFS, pid: int, descriptor: int) -> list[int]:
    """The descriptors that an epoll instance watches (proc_pid_fdinfo(5))."""
    lines = proc.text(f"{pid}/fdinfo/{descriptor}").splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("tfd:")]


def _read_descriptor(proc: ProcFS, pid: int, descriptor: int, call: str, *, search: bool) -> AwaitedFile:
    link = proc.link(f"{pid}/fd/{descriptor}")
    if call in system_calls.MESSAGE_QUEUES:
        return _read_pipe(proc, pid, descriptor, link, writes=system_calls.MESSAGE_QUEUES[call], search=search)
    if link.startswith("/"):
        file = at_path(proc, pid, link)
        mode = _read_type(proc, pid, descriptor)
        if file.mount is None and stat.S_ISFIFO(mode):
            return _read_pipe(proc, pid, descriptor, link, search=search)
        if stat.S_ISCHR(mode):  # a terminal, a serial line, an input device; a disk is a block device
            return AwaitedFile(kind="device", descriptor=descriptor, name=link)
        locked = call in system_calls.LOCKS and file.mount is None
        locks = _find_lock_holders(proc, pid, descriptor) if locked else None
        return AwaitedFile(
            kind="file", descriptor=descriptor, name=link, mount=file.mount, full=file.full, holders=locks
        )
    if (match := _SOCKET.match(link)) is not None:
        return AwaitedFile(kind="socket", descriptor=descriptor, name=link, inode=int(match[1]))
    if link.startswith("pipe:"):
        return _read_pipe(proc, pid, descriptor, link, search=search)
    return AwaitedFile(kind="other", descriptor=descriptor, name=link)


def _read_pipe(
    proc: ProcFS, pid: int, descriptor: int, link: str, *, search: bool, writes: bool | None = None
) -> AwaitedFile:
    """A pipe, a FIFO or a message queue. `writes`: whether the call writes; None if the mode of the file tells it."""
    if writes is None:
        writes = read_mode(proc, pid, descriptor) == os.O_WRONLY
    others = _find_other_end(proc, pid, descriptor, link, writes) if search else None
    return AwaitedFile(kind="pipe", descriptor=descriptor, name=link, writes=writes, holders=others)


def _read_type(proc: ProcFS, pid: int, descriptor: int) -> int:
    """The `st_mode` of an open file; 0 if it can't be read."""
    try:
        return proc.open_file(pid, descriptor).st_mode
    except ProcError:
        return 0


def _find_lock_holders(proc: ProcFS, pid: int, descriptor: int) -> tuple[Holder, ...] | None:
    try:
        return file_holders.of_lock(proc, file_holders.identity_of(proc.open_file(pid, descriptor)))
    except ProcError:
        return None


def at_path(proc: ProcFS, pid: int, path: str) -> AwaitedFile:
    """A path with its mount. `mount` is set for file systems that are not local (proc_pid_mountinfo(5)); `full` says whether a
    local one is full. Raises ProcError."""
    mount_point, kind, source = _find_mount(proc, pid, path)
    if kind in _LOCAL:
        return AwaitedFile(kind="path", name=path, full=_is_full(proc, pid, mount_point))
    return AwaitedFile(kind="path", name=path, mount=f"{kind} ({source})" if kind else None)


def is_remote(proc: ProcFS, pid: int, path: str) -> bool:
    """Whether a path is on a file system that is not local. Nothing of it is touched. Raises ProcError."""
    _, kind, _ = _find_mount(proc, pid, path)
    return bool(kind) and kind not in _LOCAL


def _find_mount(proc: ProcFS, pid: int, path: str) -> tuple[str, str, str]:
    """(mount point, kind of the file system, source) of a path; empty where no mount is found."""
    mount_point, kind, source = "", "", ""
    for line in proc.text(f"{pid}/mountinfo").splitlines():
        fields = line.split()
        if "-" not in fields[6:] or len(fields) < 10:
            continue
        point = fields[4].replace("\\040", " ")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(mount_point):
            mount_point, (kind, source) = point, fields[fields.index("-", 6) + 1 :][:2]
    return mount_point, kind, source


def _is_full(proc: ProcFS, pid: int, mount_point: str) -> bool:
    try:
        with files_of(proc, pid, proc.stat(str(pid)).start_ticks) as own:
            status = own.run(lambda root: root.space(mount_point))
    except (OSError, ProcError):
        return False
    return bool(status.f_blocks) and not status.f_bavail


def _find_other_end(proc: ProcFS, pid: int, descriptor: int, link: str, writes: bool) -> tuple[Holder, ...] | None:
    """The processes that can read what another one writes to a pipe, a FIFO or a message queue, or write what it reads; None if
    none was found. A pipe without another end blocks nobody (pipe(7)), so it belongs to a process that cannot be seen."""
    same_end = os.O_WRONLY if writes else os.O_RDONLY
    named = link.startswith("/")  # namespaces have files and queues of their own with this name
    identity = file_holders.identity_of(proc.open_file(pid, descriptor)) if named else None

    def holds(other: int, links: dict[str, str]) -> bool:
        descriptors = [int(number) for number, to in links.items() if to == link]
        return any(
            read_mode(proc, other, number) != same_end
            and (identity is None or file_holders.identity_of(proc.open_file(other, number)) == identity)
            for number in descriptors
        )

    return file_holders.with_files(proc, holds) or None


def read_mode(proc: ProcFS, pid: int, descriptor: int) -> int:
    """The access mode of a descriptor (proc_pid_fdinfo(5), open(2))."""
    for line in proc.text(f"{pid}/fdinfo/{descriptor}").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & _ACCESS_MODE
    return os.O_RDONLY
