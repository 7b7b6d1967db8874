"""The files that a process has mapped, from /proc/PID/maps (proc_pid_maps(5))."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from hangdoc.procfs import ProcFS
from hangdoc.regex import regex

_FIRST = regex(rb"^([0-9a-f]+)-\S+ \S+ 00000000 (\S+) (\d+) +(/.*)$", re.MULTILINE)
"""A mapping at offset 0 of its file: address, device, inode, path."""


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
    return [
        Mapping(int(base, 16), path.decode("utf-8", "replace").removesuffix(" (deleted)"), device.decode(), int(inode))
        for base, device, inode, path in _FIRST.findall(proc.read(f"{pid}/maps"))
    ]


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
