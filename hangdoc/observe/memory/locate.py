"""Finds the CPython interpreter in another process.

Every CPython exports the symbol `_PyRuntime`. hangdoc searches that structure for a pointer to a dict that has the key
`__main__`: this is `sys.modules`. It needs no table of offsets per version, and opens no file of the process.
"""

import contextlib
import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.memory.calibrate import Misread, calibrate
from hangdoc.observe.memory.mapped_elf import MappedFile
from hangdoc.observe.memory.maps import Mapping, mapped_files
from hangdoc.observe.memory.memory import Memory, Unreadable, Unsupported
from hangdoc.observe.memory.object_layout import TEXTS_AND_KEYS, Layout
from hangdoc.observe.memory.str_hash import KINDS, StrHash
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex

SUPPORTED = "CPython 3.10 to 3.15"
"""The tested versions (docs/attaching.md)."""
_NAMED_PYTHON = regex(r"/(?:lib)?python[^/]*$")
_VERSION = regex(r"python(\d)\.(\d+)")
_IMPORTED_EARLY = ("sys", "builtins", "__main__")
_MAX_FILES = 32
_HASHED_NAMES = 4
"""Names by which the hash is recognised."""
_MAX_RUNTIME = 1 << 22


_Build = tuple[str, int, int, int]
"""Device and inode of the interpreter's file, the offset of `_PyRuntime` in it, and the release."""


class Image(NamedTuple):
    """The interpreter of one process."""

    version: tuple[int, int]
    layout: Layout
    modules: int
    """Address of the dict `sys.modules`."""
    gap: str = ""
    """What can't be read in this interpreter; empty if everything can."""
    runtime: int = 0
    """Address of `_PyRuntime`."""
    str_hash: StrHash | None = None
    """How it hashes; None if unknown. Names in large dicts are then searched one after the other."""


class _Runtime(NamedTuple):
    """The interpreter's symbols: absolute addresses."""

    address: int
    size: int
    dict_type: int
    name: str
    """The version and the file, for messages."""
    key: _Build
    free_threaded: bool
    secret: int | None
    """Address of `_Py_HashSecret`."""


# Usually the same in all processes of one build: the offsets that lead to sys.modules, and the layout. Both are tried first in
# each process, and checked there, because the process in which they were found may have changed its objects.
_places: dict[_Build, tuple[int, ...]] = {}
_layouts: dict[_Build, Layout] = {}


def python_version(proc: ProcFS, pid: int, files: list[Mapping]) -> tuple[int, int] | None:
    """(major, minor) of the CPython that `pid` runs, from the names of its mapped `files`; None for anything else."""
    versions = (_VERSION.search(mapped.path.rsplit("/", 1)[-1]) for mapped in _find_pythons_among(proc, pid, files))
    return next(((int(match[1]), int(match[2])) for match in versions if match), None)


def locate(proc: ProcFS, pid: int, budget: Budget | None = None) -> Image:
    """The interpreter of `pid`, found within its `budget`. Raises Unreadable with the reason, or Unsupported if hangdoc does not
    support the interpreter. A process that has just started can't be distinguished from an unsupported one.
    """
    try:
        files = _find_pythons_among(proc, pid, mapped_files(proc, pid))
        program = proc.link(f"{pid}/exe")
    except ProcError as error:
        raise Unreadable(str(error)) from error
    with Memory(pid, Layout(), str(proc.root), budget) as memory:
        runtime = next(_find_runtimes(memory, files), None)
        if runtime is None:
            raise Unsupported(f"no CPython found in {program}")
        if runtime.free_threaded:
            raise Unsupported(f"{runtime.name} is free-threaded, which hangdoc does not support")
        modules = _find_modules(memory, runtime)
        memory.str_hash = _find_hash(memory, modules, runtime)
        version, layout = _calibrate_layout(memory, modules, runtime)
        gap = "" if layout.instances else f"hangdoc does not know where {runtime.name} stores attributes of objects"
        return Image(version, layout, modules, gap, runtime.address, memory.str_hash)


def _find_hash(memory: Memory, modules: int, runtime: _Runtime) -> StrHash | None:
    """How the process hashes: so that the hashes which the first names of `modules` store come out, and lead to their values."""
    if runtime.secret is None:
        return None
    with contextlib.suppress(Unreadable):
        secret = struct.unpack("<2Q", memory.read(runtime.secret, 16))
        first = [
            (memory.text(key), memory.word(key + 24), value)
            for key, value in islice(memory.items(modules), _HASHED_NAMES)
        ]
        for rounds in KINDS:
            memory.str_hash = str_hash = StrHash(secret, rounds)
            agrees = all(name.isascii() and str_hash.hash(name) == stored for name, stored, _ in first)
            if agrees and memory.find_named(modules, [name for name, _, _ in first]) == {
                n: value for n, _, value in first
            }:
                return str_hash
    return None


def _calibrate_layout(memory: Memory, modules: int, runtime: _Runtime) -> tuple[tuple[int, int], Layout]:
    forms = memory.layout
    for last in (False, True):  # the process runs: an object may have changed during the first attempt
        memory.layout = forms
        try:
            version = calibrate(memory, modules, _layouts.get(runtime.key))
        except Misread as what:
            if last:
                memory.word(runtime.address)  # raises Unreadable if the process has ended
                raise Unsupported(f"hangdoc does not know how {runtime.name} stores {what}") from what
            continue
        if memory.layout.instances:
            _layouts[runtime.key] = memory.layout
            break
    return version, memory.layout


def _find_pythons_among(proc: ProcFS, pid: int, files: list[Mapping]) -> list[Mapping]:
    """The files that may contain the interpreter: first those named python or libpython, then the program itself."""
    try:
        program = proc.link(f"{pid}/exe").removesuffix(" (deleted)")
    except ProcError:
        program = None
    named = [mapped for mapped in files if _NAMED_PYTHON.search(mapped.path)]
    rest = [mapped for mapped in files if mapped.path == program and not _NAMED_PYTHON.search(mapped.path)]
    return [*named, *rest][:_MAX_FILES]


def _find_runtimes(memory: Memory, files: list[Mapping]) -> Iterator[_Runtime]:
    for file in files:
        with contextlib.suppress(Unreadable):
            image = MappedFile(memory, file.base)
            runtime, dict_type = image.symbol("_PyRuntime"), image.symbol("PyDict_Type")
            if runtime is None or dict_type is None:
                continue
            # _Py_DebugOffsets, since 3.13: cookie, version, whether free-threaded (Include/internal/pycore_debug_offsets.h)
            free = memory.read(runtime.address, 8) == b"xdebugpy" and memory.word(runtime.address + 16) == 1
            if not free and memory.c_string(memory.word(dict_type.address + 24)) != "dict":
                continue
            release = image.symbol("Py_Version")  # since 3.11
            number = memory.word(release.address) if release else 0
            named = _VERSION.search(file.path.rsplit("/", 1)[-1])
            version = f" {number >> 24}.{number >> 16 & 0xFF}" if number else f" {named[1]}.{named[2]}" if named else ""
            key = (file.device, file.inode, runtime.address - file.base, number)
            secret = image.symbol("_Py_HashSecret")
            yield _Runtime(
                runtime.address,
                runtime.size,
                dict_type.address,
                f"Python{version} ({file.path})",
                key,
                free,
                secret.address if secret is not None else None,
            )


def _find_modules(memory: Memory, runtime: _Runtime) -> int:
    """The address of sys.modules. Sets the forms of str and dict in `memory.layout` with which it can be read."""
    offsets = _places.get(runtime.key)
    if offsets is not None:
        with contextlib.suppress(Unreadable):
            address = runtime.address
            for offset in offsets:
                address = memory.word(address + offset)
            if _is_modules(memory, address, runtime):
                return address
    for place, address in _find_dicts(memory, runtime):
        with contextlib.suppress(Unreadable):
            if _is_modules(memory, address, runtime):
                _places[runtime.key] = place
                return address
    memory.word(runtime.address)  # raises Unreadable if the process has ended
    if offsets is not None:
        raise Unreadable(f"pid {memory.pid} has no sys.modules any more: it is about to end")
    raise Unsupported(f"sys.modules was not found in {runtime.name}")


def _find_dicts(memory: Memory, runtime: _Runtime) -> Iterator[tuple[tuple[int, ...], int]]:
    """Every dict that _PyRuntime points to, with the offsets that lead to it."""
    pointers = list(_find_pointers(memory, runtime.address, min(runtime.size, _MAX_RUNTIME)))
    for offset, pointer in pointers:
        if _read_type(memory, pointer) == runtime.dict_type:
            yield (offset,), pointer
    if runtime.size < 1 << 15:  # 3.10 stores the state of an interpreter in a structure of its own
        for offset, pointer in pointers:
            for inner, address in _find_pointers(memory, pointer, 1 << 12):
                if _read_type(memory, address) == runtime.dict_type:
                    yield (offset, inner), address


def _find_pointers(memory: Memory, address: int, size: int) -> Iterator[tuple[int, int]]:
    """(offset, value) of the words that may be pointers."""
    try:
        raw = memory.read(address, size // 8 * 8)
    except Unreadable:
        return
    for index, word in enumerate(struct.unpack(f"<{len(raw) // 8}Q", raw)):
        if not word & 7 and 4096 < word < 1 << 47:
            yield index * 8, word


def _read_type(memory: Memory, address: int) -> int | None:
    try:
        return memory.word(address + 8)
    except Unreadable:
        return None


def _is_modules(memory: Memory, address: int, runtime: _Runtime) -> bool:
    if memory.word(address + 8) != runtime.dict_type:
        return False
    likely = _layouts.get(runtime.key, Layout())
    for form in sorted(TEXTS_AND_KEYS, key=lambda form: form[:2] != likely[:2]):
        memory.layout = form
        with contextlib.suppress(Unreadable):
            if len(memory.find_named(address, _IMPORTED_EARLY, 128)) == len(_IMPORTED_EARLY):
                return True
    return False
