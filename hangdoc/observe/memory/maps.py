"""The files that a process has mapped, from /proc/PID/maps (proc_pid_maps(5)): which ones, and whether Python and torch are
among them."""

import contextlib
import os
import re
from typing import NamedTuple

from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.torch_facts import cpp_names

_FIRST = regex(rb"^([0-9a-f]+)-\S+ \S+ 00000000 (\S+) (\d+) +(/.*)$", re.MULTILINE)
"""A mapping at offset 0 of its file: address, device, inode, path."""
_DELETED = " (deleted)"
_MAPPED_PYTHON = regex(rb"/libpython3|/(?:python|pypy)[\d.]*[a-z]*(?: \(deleted\))?$", re.MULTILINE)
"""A line of /proc/PID/maps that shows Python as a library or as the program."""
_MAPS_BYTES = 4 << 20
"""Of the maps of a process. A rank has 0.3 to 1 MB."""


class Mapping(NamedTuple):
    """The first mapping of a file: the one that holds its first byte."""

    base: int
    path: str
    """As the kernel shows it here. For a process in a container, it may be valid there, here, or in neither place."""
    device: str
    """`major:minor`, hexadecimal."""
    inode: int
    deleted: bool = False
    """Nothing, or another file, is at the path now."""


def mapped_files(proc: ProcFS, pid: int) -> list[Mapping]:
    """Every file whose first byte `pid` has mapped, by ascending address. Raises ProcError."""
    mappings = []
    for base, device, inode, raw in _FIRST.findall(proc.read(f"{pid}/maps")):
        path = raw.decode("utf-8", "replace")
        name = path.removesuffix(_DELETED)
        mappings.append(Mapping(int(base, 16), name, device.decode(), int(inode), name != path))
    return mappings


def inner_path(proc: ProcFS, pid: int, mapping: Mapping) -> str:
    """The path of a mapped file as the process sees it. Of a process in a chroot, the kernel shows the path from our root
    directory; of one with other mounts, the path that is valid there."""
    try:
        root = proc.link(f"{pid}/root")
    except ProcError:
        return mapping.path
    inner = mapping.path.removeprefix(root) if root != "/" else mapping.path
    return inner if inner.startswith("/") else mapping.path


def is_python(proc: ProcFS, pid: int) -> bool:
    """Whether a process runs Python, whatever its name is. If its program may not be read (root without
    CAP_SYS_PTRACE, a process with it), its mapped files show it: the kernel is less strict about them."""
    with contextlib.suppress(ProcError):
        program = os.path.basename(proc.link(f"{pid}/exe")).removesuffix(" (deleted)")
        if program.startswith(("python", "pypy")):
            return True
    try:
        return _MAPPED_PYTHON.search(proc.head(f"{pid}/maps", _MAPS_BYTES)) is not None
    except ProcError:
        return False


def maps_torch(proc: ProcFS, pid: int) -> bool:
    """Whether a process has loaded torch's Python library."""
    try:
        return cpp_names.LIBTORCH_PYTHON in proc.head(f"{pid}/maps", _MAPS_BYTES)
    except ProcError:
        return False
