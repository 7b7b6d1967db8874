"""Finds the NCCL, or AMD's RCCL, that a process has loaded: where, which version, and where its list of communicators is.

A job may override the NCCL that torch brings (LD_PRELOAD, LD_LIBRARY_PATH, VLLM_NCCL_SO_PATH), so what is mapped counts. The
file has 220 MB, most of it code for the card: only its headers, `.rodata` and the tables of symbols are read, 1 MB in 3 ms, and
once for all processes with the same file. This needs no right to trace the process.
"""

import os
import threading
from typing import NamedTuple

from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.memory.elf_file import ElfFile
from hangdoc.observe.memory.maps import Mapping, inner_path, mapped_files
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.procfs import ProcFS
from hangdoc.torch_facts import nccl
from hangdoc.torch_facts.nccl import Version

_MAX_TEXTS = 16 << 20
"""Bytes of `.rodata`. Those of NCCL 2.28 are 0.2 MB."""
_MACHINES = {62: "x86_64", 183: "aarch64"}
"""EM_X86_64 and EM_AARCH64."""
_MAX_LIBRARIES = 4
_MAX_CACHED = 64


class LibraryFile(NamedTuple):
    """What the file of a library says. Addresses are before it is moved to where it is loaded."""

    machine: str
    version: Version | None
    toolkit: tuple[int, int] | None
    build_id: str
    build_id_at: int
    first_address: int
    variables: dict[str, int]
    no_variables: str
    """Why `variables` is empty: one clause."""


class NcclLibrary(NamedTuple):
    """A loaded library. Addresses are absolute."""

    name: str
    """`nccl` or `rccl`."""
    path: str
    """As the process sees it."""
    base: int
    machine: str
    """`x86_64`, `aarch64`, or empty for any other."""
    version: Version | None
    """None if the file does not have the text with its version."""
    toolkit: tuple[int, int] | None
    """The version of CUDA or ROCm that it was built with: (13, 0)."""
    build_id: str
    """Hexadecimal; empty if it has none."""
    build_id_at: int
    """Where the note with the build id is in memory; 0 if there is none."""
    variables: dict[str, int]
    """Where `ncclComms` and `nNcclComms` are; empty if that is not known."""
    no_variables: str
    """Why: one clause; empty if they are known."""


def find_nccl(proc: ProcFS, pid: int, start_ticks: int, files: list[Mapping] | None = None) -> list[NcclLibrary]:
    """The NCCL libraries of the process that started at `start_ticks`, mostly one, by ascending address; empty if it has loaded
    none. `files`: what it has mapped, if the caller knows. Raises Unreadable if their files can't be read, and ProcError."""
    if files is None:
        files = mapped_files(proc, pid)
    mapped = [mapping for mapping in files if nccl.LIBRARY.search(mapping.path)][:_MAX_LIBRARIES]
    libraries: list[NcclLibrary] = []
    reason = ""
    for mapping in mapped:
        try:
            libraries.append(_read_library(proc, pid, start_ticks, mapping))
        except (Unreadable, OSError) as error:
            reason = reason or f"its {mapping.path.rpartition('/')[2]} can't be read: {_clause(error)}"
    if mapped and not libraries:
        raise Unreadable(reason)
    return libraries


def _clause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read_library(proc: ProcFS, pid: int, start_ticks: int, mapping: Mapping) -> NcclLibrary:
    """Raises Unreadable, OSError and ProcError."""
    if mapping.deleted:
        raise Unreadable("the file was replaced or removed after the process had loaded it")
    path = inner_path(proc, pid, mapping)
    with files_of(proc, pid, start_ticks) as files:
        file = files.run(lambda root: _read_file(root, path))
    moved = mapping.base - file.first_address
    name = nccl.LIBRARY.search(mapping.path)
    return NcclLibrary(
        name=name[1] if name is not None else "nccl",
        path=path,
        base=mapping.base,
        machine=file.machine,
        version=file.version,
        toolkit=file.toolkit,
        build_id=file.build_id,
        build_id_at=file.build_id_at + moved if file.build_id_at else 0,
        variables={variable: address + moved for variable, address in file.variables.items()},
        no_variables=file.no_variables,
    )


_Key = tuple[int, int, int, int, int]
_files: dict[_Key, LibraryFile] = {}
"""By device, inode, size, and times of change. What was read of a file of one user is true for all who have mapped it."""
_lock = threading.Lock()


def _read_file(root: Root, path: str) -> LibraryFile:
    """What the file at `path` says. Raises Unreadable and OSError."""
    descriptor = root.open_regular(path)
    try:
        about = os.fstat(descriptor)
        key = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
        file = _files.get(key)
        if file is None:
            file = parse_file(ElfFile(lambda offset, size: _read_at(descriptor, about.st_size, offset, size)))
            with _lock:
                if len(_files) >= _MAX_CACHED:
                    _files.clear()
                _files[key] = file
        return file
    finally:
        os.close(descriptor)


def _read_at(descriptor: int, length: int, offset: int, size: int) -> bytes:
    """The bytes at an offset that the file itself claims."""
    return os.pread(descriptor, size, offset) if offset < length else b""


def parse_file(elf: ElfFile) -> LibraryFile:
    """What the file of an NCCL says. Raises Unreadable."""
    match = nccl.VERSION_TEXT.search(elf.contents(".rodata", _MAX_TEXTS))
    variables: dict[str, int] = {}
    reason = ""
    try:
        variables = elf.variables(nccl.VARIABLES)
        if len(variables) < len(nccl.VARIABLES):
            variables, reason = {}, "it has no list of communicators, which NCCL keeps since 2.24"
    except Unreadable as error:
        reason = str(error)
    note = elf.sections.get(".note.gnu.build-id")
    return LibraryFile(
        machine=_MACHINES.get(elf.machine, ""),
        version=(int(match[1]), int(match[2]), int(match[3])) if match else None,
        toolkit=(int(match[4]), int(match[5])) if match and match[4] else None,
        build_id=elf.build_id(),
        build_id_at=note.address if note is not None else 0,
        first_address=elf.first_address,
        variables=variables,
        no_variables=reason,
    )
