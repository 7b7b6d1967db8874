"""What a file is that a thread waits for: which mount it lies on, and who holds the other end of a pipe.

Only links, mount tables and one string of memory are read: the file itself is never touched, it may not answer.
"""

import os
import posixpath

from hangdoc.observe.procfs import ProcError, ProcFS

_LOCAL = frozenset({"ext4", "xfs", "btrfs", "overlay", "tmpfs", "ext3", "ext2", "zfs", "proc", "sysfs", "devtmpfs"})
_MAX_PATH = 512
_ACCESS_MODE = 0o3
_WRITE_ONLY = 0o1


def text_at(proc: ProcFS, pid: int, address: int) -> str:
    """The path that a system call was given, absolute where it is relative to the working directory; raises ProcError or
    ValueError."""
    try:
        with open(f"{proc.root}/{pid}/mem", "rb") as memory:
            memory.seek(address)
            raw = memory.read(_MAX_PATH)
    except (OSError, OverflowError) as error:
        raise ValueError(str(error)) from error
    path = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return posixpath.join(proc.link(f"{pid}/cwd"), path) if path and not path.startswith("/") else path


def mounted(proc: ProcFS, pid: int, path: str) -> str:
    """` on KIND (SOURCE)` for a path on anything but a local file system (proc_pid_mountinfo(5)), and that a local one is
    full; else nothing."""
    point_of, kind, source = "", "", ""
    for line in proc.text(f"{pid}/mountinfo").splitlines():
        fields = line.split()
        if "-" not in fields[6:] or len(fields) < 10:
            continue
        point = fields[4].replace("\\040", " ")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(point_of):
            point_of, (kind, source) = point, fields[fields.index("-", 6) + 1 :][:2]
    if kind in _LOCAL:
        return _full(f"{proc.root}/{pid}/root{point_of}")
    return f" on {kind} ({source})" if kind else ""


def _full(mount: str) -> str:
    """Whether a local file system has no room left."""
    try:
        about = os.statvfs(mount)
    except OSError:
        return ""
    return " on a full file system" if about.f_blocks and not about.f_bavail else ""


def about(proc: ProcFS, pid: int, descriptor: int, link: str, search: bool) -> str:
    """What else is worth saying of an open file: its mount, or who holds a pipe's other end (`search` looks for them)."""
    if link.startswith("/"):
        return mounted(proc, pid, link)
    if link.startswith("pipe:") and search:
        return _other_end(proc, pid, descriptor, link)
    return ""


def _other_end(proc: ProcFS, pid: int, descriptor: int, link: str) -> str:
    mine = _writes(proc, pid, descriptor)
    held = []
    for other in proc.pids():
        try:
            for fd, target in proc.links(f"{other}/fd").items():
                if target == link and _writes(proc, other, int(fd)) != mine:
                    stat = proc.stat(str(other))
                    held.append(f"pid {other} ({stat.name}, state {stat.state})")
                    break
        except (ProcError, ValueError):
            continue
        if len(held) == 3:
            break
    end = "read" if mine else "write"
    return f", its {end} end held by {', '.join(held)}" if held else f", its {end} end held by nobody that was seen"


def _writes(proc: ProcFS, pid: int, descriptor: int) -> bool:
    """Whether a descriptor is open for writing (proc_pid_fdinfo(5))."""
    for line in proc.text(f"{pid}/fdinfo/{descriptor}").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & _ACCESS_MODE == _WRITE_ONLY
    return False
