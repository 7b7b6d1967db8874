"""The files that a process has mapped, from /proc/PID/maps (proc_pid_maps(5))."""

import re
from typing import NamedTuple

from hangdoc.procfs import ProcError, ProcFS
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


def inner_path(proc: ProcFS, pid: int, mapping: Mapping) -> str:
    """The path of a mapped file as the process sees it. Of a process in a chroot, the kernel shows the path from our root
    directory; of one with other mounts, the path that is valid there."""
    try:
        root = proc.link(f"{pid}/root")
    except ProcError:
        return mapping.path
    inner = mapping.path.removeprefix(root) if root != "/" else mapping.path
    return inner if inner.startswith("/") else mapping.path
