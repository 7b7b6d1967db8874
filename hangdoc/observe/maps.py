"""The files that a process has mapped, from /proc/PID/maps (proc_pid_maps(5))."""

import os
from pathlib import Path
from typing import NamedTuple

from hangdoc.observe.procfs import ProcFS


class Mapping(NamedTuple):
    """The first mapping of a file: the one that holds its first byte."""

    base: int
    path: str
    """As the kernel shows it here. For a process in a container, it may be valid there, here, or in neither place."""
    device: str
    """`major:minor`, hexadecimal."""
    inode: int


def mapped_files(proc: ProcFS, pid: int) -> list[Mapping]:
    """Every file whose first byte `pid` has mapped, by ascending address. Raises ProcError."""
    found = []
    for line in proc.read(f"{pid}/maps").decode("utf-8", "replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[2] == "00000000" and fields[5].startswith("/"):
            path = fields[5].removesuffix(" (deleted)")
            found.append(Mapping(int(fields[0].split("-")[0], 16), path, fields[3], int(fields[4])))
    return found


def reach(proc: ProcFS, pid: int, mapping: Mapping) -> Path | None:
    """A path by which the mapped file can be opened from here; None if no file with its inode is found.

    Its path is tried below the root directory of `pid` first, then as an absolute path here (bind mounts, chroots).
    """
    same_inode = None
    for path in (Path(f"{proc.root}/{pid}/root{mapping.path}"), Path(mapping.path)):
        try:
            about = path.stat()
        except OSError:
            continue
        if about.st_ino == mapping.inode:
            if f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}" == mapping.device:
                return path
            same_inode = same_inode or path  # overlayfs and btrfs may show different devices in maps and stat(2)
    return same_inode
