"""The libraries of torch that a process has loaded, and where their variables are, from /proc/PID/maps.

Only private mappings count: a process may also map the file of a library without loading it.
"""

from typing import NamedTuple

from hangdoc.procfs import ProcFS
from hangdoc.torch_facts import cpp_names

_MAX_LIBRARIES = 8
_MAX_VARIABLES = 32 << 20
"""Bytes of a library's variables that are searched. libtorch_cpu has 1.3 MiB of them."""


class Library(NamedTuple):
    """A loaded library with its variables (.data and .bss)."""

    kind: str
    """`cpu`, or the kind of card: `cuda`, `hip`, `xpu`."""
    device: str
    """`major:minor`, hexadecimal."""
    inode: int
    start: int
    end: int
    """The addresses of the variables."""


class Loaded(NamedTuple):
    """What a process has loaded."""

    libraries: list[Library]
    heaps: list[tuple[int, int]]
    """Bounds of the memory in which objects are allocated, ascending."""


def torch_libraries(proc: ProcFS, pid: int) -> Loaded:
    """Those of torch that may have a flight recorder. Raises ProcError."""
    libraries: list[Library] = []
    heaps: list[tuple[int, int]] = []
    for line in proc.read(f"{pid}/maps").splitlines():
        words = line.split(None, 5)
        start, _, end = words[0].partition(b"-")
        first, last = int(start, 16), int(end, 16)
        if words[1] == b"rw-p" and (len(words) < 6 or words[5].startswith(b"[")):
            if libraries and first == libraries[-1].end:  # the rest of .bss follows what the file has of it
                libraries[-1] = libraries[-1]._replace(end=min(last, libraries[-1].start + _MAX_VARIABLES))
            heaps.append((first, last))
            continue
        if len(words) < 6 or words[1] != b"rw-p" or cpp_names.WITH_RECORDER_PREFIX not in words[5]:
            continue
        match = cpp_names.WITH_RECORDER.search(words[5].decode("utf-8", "replace").removesuffix(" (deleted)"))
        if match is not None and len(libraries) < _MAX_LIBRARIES:
            last = min(last, first + _MAX_VARIABLES)
            libraries.append(Library(match[1], words[3].decode(), int(words[4]), first, last))
    return Loaded(libraries, heaps)


class Mapped(NamedTuple):
    """The memory that a process has mapped."""

    torch: list[tuple[int, int]]
    """Bounds of all that is mapped of torch's libraries, ascending."""
    writable: list[tuple[int, int]]
    """Bounds of heaps and stacks, ascending."""

    def end_of(self, address: int) -> int | None:
        """Where the heap or stack with this address ends; None if there is none."""
        return next((end for start, end in self.writable if start <= address < end), None)


def mapped_memory(proc: ProcFS, pid: int) -> Mapped:
    """Where torch's libraries are, and heaps and stacks. Raises ProcError."""
    mapped = Mapped([], [])
    for line in proc.read(f"{pid}/maps").splitlines():
        words = line.split(None, 5)
        start, _, end = words[0].partition(b"-")
        if len(words) < 6 or words[5].startswith(b"["):
            if words[1] == b"rw-p":
                mapped.writable.append((int(start, 16), int(end, 16)))
        elif words[1].endswith(b"p") and cpp_names.LIBTORCH.search(words[5]):
            mapped.torch.append((int(start, 16), int(end, 16)))
    return mapped
