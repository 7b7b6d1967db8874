"""Finds a Python interpreter's modules in another process, and what they hold that no stack shows.

Three things can't be had from stacks: variables of a loop at module level, what the process put into `os.environ` after
its start (launchers that make themselves rank 0, `mp.spawn` workers), and the members of torch's process groups. All
three hang below `sys.modules`. Its dict is found by looking through the `_PyRuntime` structure, whose symbol every
CPython exports, for the pointer to a dict that has `__main__` among its keys: no table of offsets per version.
"""

import contextlib
import math
import re
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from hangdoc.observe.memory import DICT, LONG, UNICODE, Memory, Unreadable
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.snapshot import Group

_PYTHON_FILE = re.compile(r"/(?:libpython(\d)\.(\d+)[a-z]*\.so[\d.]*|python(\d)\.(\d+))(?: \(deleted\))?$")
_MANAGED_DICT = 1 << 4
"""Py_TPFLAGS_MANAGED_DICT (Include/object.h)."""
SUPPORTED = ((3, 11), (3, 12), (3, 13))


class Image(NamedTuple):
    """Where a process keeps its Python runtime: absolute addresses."""

    version: tuple[int, int]
    runtime: int
    runtime_size: int
    dict_type: int
    key: str
    """Equal for processes that run the same file: the place of `sys.modules` in it is the same."""


class Variable(NamedTuple):
    """A module's variable: a number, a short string, or the length of a container."""

    name: str
    text: str
    number: int | None
    length: int | None


_symbols: dict[str, tuple[int, int, int, bool]] = {}
_modules_offset: dict[str, int] = {}
_modules: dict[tuple[int, int, int], dict[str, int]] = {}
_lock = Lock()


def python_version(proc: ProcFS, pid: int) -> tuple[int, int] | None:
    """The (major, minor) of the CPython that `pid` runs, from the files it has mapped; None for anything else."""
    found = _mapped_python(proc, pid)
    return found[0][0] if found else None


def _mapped_python(proc: ProcFS, pid: int) -> list[tuple[tuple[int, int], int, str]]:
    """(version, base address, path) of every mapped file that may hold the interpreter."""
    found = []
    for line in proc.read(f"{pid}/maps").decode("utf-8", "replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[2] == "00000000" and (match := _PYTHON_FILE.search(fields[5])):
            major, minor = (int(n) for n in match.groups() if n is not None)
            found.append(((major, minor), int(fields[0].split("-")[0], 16), fields[5]))
    return found


def locate(proc: ProcFS, pid: int) -> Image:
    """Where `pid` keeps its Python; raises Unreadable with the reason."""
    try:
        candidates = _mapped_python(proc, pid)
    except ProcError as error:
        raise Unreadable(str(error)) from error
    if not candidates:
        raise Unreadable("no CPython mapped")
    for version, base, path in candidates:
        if version not in SUPPORTED:
            raise Unreadable(f"Python {version[0]}.{version[1]} is not among those whose memory is understood")
        symbols = _find_symbols(proc, pid, path)
        if symbols:
            runtime, size, dict_type, moved = symbols
            shift = base if moved else 0
            return Image(version, runtime + shift, size, dict_type + shift, path)
    raise Unreadable("no exported _PyRuntime")


def _find_symbols(proc: ProcFS, pid: int, path: str) -> tuple[int, int, int, bool] | None:
    """(value and size of _PyRuntime, value of PyDict_Type, position-independent) of an ELF file as `pid` sees it."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    file_path = Path(f"{proc.root}/{pid}/root{path}")
    try:
        about = file_path.stat()
        key = f"{about.st_dev}:{about.st_ino}:{about.st_mtime_ns}"
        with _lock:
            if key in _symbols:
                return _symbols[key]
            with file_path.open("rb") as file:
                elf = ELFFile(file)
                table: Any = elf.get_section_by_name(".gnu.hash") or elf.get_section_by_name(".hash")
                runtime = table.get_symbol("_PyRuntime") if table else None
                dict_type = table.get_symbol("PyDict_Type") if table else None
                if runtime is None or dict_type is None:
                    return None
                moved = elf["e_type"] == "ET_DYN"
                found = (runtime["st_value"], runtime["st_size"], dict_type["st_value"], moved)
            _symbols[key] = found
            return found
    except (OSError, ELFError) as error:
        raise Unreadable(f"cannot read {path}: {error}") from error


class Modules:
    """`sys.modules` of one process. Raises Unreadable where it can't be found."""

    def __init__(self, memory: Memory, image: Image) -> None:
        self._memory = memory
        self._address = self._find(image)

    def _find(self, image: Image) -> int:
        known = _modules_offset.get(image.key)
        if known is not None:
            with contextlib.suppress(Unreadable):
                address = self._memory.word(image.runtime + known)
                if self._is_modules(address, image.dict_type):
                    return address
        raw = self._memory.read(image.runtime, min(image.runtime_size, 1 << 22) // 8 * 8)
        for index, address in enumerate(struct.unpack(f"<{len(raw) // 8}Q", raw)):
            if address & 7 or not 4096 < address < 1 << 47:
                continue
            with contextlib.suppress(Unreadable):
                if self._is_modules(address, image.dict_type):
                    _modules_offset[image.key] = index * 8
                    return int(address)
        raise Unreadable("sys.modules not found in _PyRuntime")

    def _is_modules(self, address: int, dict_type: int) -> bool:
        if self._memory.word(address + 8) != dict_type:
            return False
        first = {name for name, _ in islice(self._memory.named_items(address), 128)}  # all three come early
        return {"sys", "builtins", "__main__"} <= first

    def namespace(self, *wanted: str) -> dict[str, dict[str, int]]:
        """For each wanted module that is imported: its variables' names and addresses."""
        found: dict[str, dict[str, int]] = {}
        for name in wanted:
            if (module := self._all().get(name)) is not None:
                with contextlib.suppress(Unreadable):
                    # PyModuleObject: ob_base, md_dict (Include/internal/pycore_moduleobject.h)
                    found[name] = dict(self._memory.named_items(self._memory.word(module + 16)))
        return found

    def _all(self) -> dict[str, int]:
        """Every module's address by its name. Two thousand names take 15 ms, so they are kept for as long as their number
        is the same: a module that took another's place keeps its name."""
        used = self._memory.word(self._address + 16)  # PyDictObject: ob_base, ma_used
        key = (self._memory.pid, self._address, used)
        if key not in _modules:
            for other in [known for known in _modules if known[0] == self._memory.pid]:
                _modules.pop(other, None)
            _modules[key] = dict(self._memory.named_items(self._address))
        return _modules[key]


def variable(memory: Memory, name: str, address: int) -> Variable | None:
    """A variable as a short text, or None where it is nothing a person would compare."""
    kind, flags = memory.kind(address)
    if kind == "bool":
        return Variable(name, str(bool(memory.integer(address))), None, None)
    if flags & LONG:
        number = memory.integer(address)
        return Variable(name, str(number), number, None)
    if kind == "float":
        return Variable(name, f"{struct.unpack('<d', memory.read(address + 16, 8))[0]:g}", None, None)
    if flags & UNICODE:
        return Variable(name, repr(memory.text(address)[:200]), None, None)
    if (text := torch_value(memory, address)) is not None:
        return Variable(name, text, None, None)
    length = memory.length(address)
    return None if length is None else Variable(name, f"<{kind} of {length}>", None, length)


_TENSORS = frozenset({"Tensor", "Parameter", "Buffer", "torch.Tensor", "torch.nn.parameter.Parameter"})
# c10/core/ScalarType.h
_DTYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
           9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}  # fmt: skip


def torch_value(memory: Memory, address: int) -> str | None:
    """A torch.dtype as `torch.bfloat16`, a tensor as `float32[64, 8]`; None for anything else.

    torch/csrc/Dtype.h keeps the name inline. A tensor's Python object points to its c10::TensorImpl, whose fields move
    between versions: sizes are looked for as a count, so many numbers, and their product where `numel` must be, with a
    known dtype behind it. What does not agree with itself is not taken.
    """
    kind, _ = memory.kind(address)
    if kind == "torch.dtype":
        name = memory.read(address + 17, 24).split(b"\0", 1)[0]
        return f"torch.{name.decode()}" if name.isalnum() or name.replace(b"_", b"").isalnum() else None
    if kind not in _TENSORS:
        return None
    for offset in (16, 24):  # since 2.10 an owning pointer alone, before behind a flag
        with contextlib.suppress(Unreadable):
            words = struct.unpack("<26Q", memory.read(memory.word(address + offset), 208))
            for at in range(4, 10):
                count, numel, dtype = words[at], words[at + 12], words[at + 13] & 0xFFFF
                sizes = words[at + 1 : at + 1 + count] if count <= 5 else ()
                strides = words[at + 6 : at + 6 + count] if count <= 5 else ()
                if (
                    count <= 5
                    and dtype in _DTYPES
                    and math.prod(sizes) == numel
                    and all(0 < s < 1 << 40 for s in strides)
                ):
                    return f"{_DTYPES[dtype]}[{', '.join(map(str, sizes))}]"
    return None


def inner_environment(memory: Memory, os_module: dict[str, int]) -> dict[str, str]:
    """`os.environ` as the process has it now; raises Unreadable."""
    # os._Environ keeps its dict in the instance attribute `_data`; the same dict is found from the instance's values.
    address = dict(attributes(memory, os_module["environ"]))["_data"]
    found = {}
    for key, value in memory.items(address):
        with contextlib.suppress(Unreadable):
            found[memory.data(key).decode("utf-8", "replace")] = memory.data(value).decode("utf-8", "replace")
    return found


def attributes(memory: Memory, instance: int) -> Iterator[tuple[str, int]]:
    """Names and addresses of the attributes of a plain Python object; raises Unreadable for any other.

    A plain instance keeps its attributes in a dict, or as values beside the key names that its class shares
    (Objects/object_layout.md, Include/internal/pycore_dict.h). Where they lie before or behind the object differs by
    version.
    """
    of = memory.word(instance + 8)
    if not memory.kind(instance)[1] & _MANAGED_DICT:
        raise Unreadable("no managed attributes")
    if memory.version == (3, 11):
        values, whole = memory.word(instance - 32), memory.word(instance - 24)
    elif memory.version == (3, 12):
        either = memory.word(instance - 24)
        values, whole = (either + 1, 0) if either & 1 else (0, either)  # PyDictOrValues: tagged by the lowest bit
    else:
        whole = memory.word(instance - 24)
        values = instance + memory.word(of + 32) + 8  # inline, behind tp_basicsize, after 4 bytes of state and padding
    if whole:
        keys, table = memory.word(whole + 32), memory.word(whole + 40)
        if not table:
            yield from memory.named_items(whole)
            return
        values = table + (8 if memory.version >= (3, 13) else 0)
    else:
        keys = memory.word(of + _cached_keys_offset(memory))
    header = memory.read(keys, 32)
    entries, start = int.from_bytes(header[24:32], "little"), keys + 32 + (1 << min(header[9], 16))
    for index in range(min(entries, 64)):
        with contextlib.suppress(Unreadable):
            value = memory.word(values + index * 8)
            if value:
                yield memory.text(memory.word(start + index * 16)), value


def amounts(memory: Memory, name: str, instance: int, depth: int = 2) -> Iterator[Variable]:
    """Numbers and lengths of containers below an object, as `loader.dataset.paths`: where a script keeps how much data
    it has. Names with an underscore are the object's own business."""
    for attribute, address in islice(attributes(memory, instance), 48):
        if attribute.startswith("_"):
            continue
        path = f"{name}.{attribute}"
        with contextlib.suppress(Unreadable):
            found = variable(memory, path, address)
            if found is not None:
                if found.number is not None or found.length is not None:
                    yield found
            elif depth > 1:
                yield from amounts(memory, path, address, depth - 1)


def posted(memory: Memory, name: str, address: int) -> Iterator[Variable]:
    """Point-to-point calls in a list for batch_isend_irecv, each as `P2POp(isend, 1)`: the call and its peer."""
    for index, element in enumerate(memory.elements(address, 64)):
        with contextlib.suppress(Unreadable, KeyError):
            of = dict(attributes(memory, element))
            call = memory.text(memory.word(of["op"] + 32))  # PyFunctionObject: globals, builtins, name
            yield Variable(f"{name}[{index}]", f"P2POp({call}, {memory.integer(of['peer'])})", None, None)


def _cached_keys_offset(memory: Memory) -> int:
    """Offset of ht_cached_keys in PyHeapTypeObject: behind PyTypeObject and its five method tables, name, slots, qualname."""
    type_size = {(3, 11): 408, (3, 12): 416, (3, 13): 416}[memory.version]
    # as_async 4, as_number 36, as_mapping 3, as_sequence 10, as_buffer 2 words; then ht_name, ht_slots, ht_qualname
    return type_size + (4 + 36 + 3 + 10 + 2) * 8 + 3 * 8


def process_groups(memory: Memory, c10d: dict[str, int]) -> tuple[Group, ...]:
    """torch's process groups, their members and backends, from torch.distributed.distributed_c10d's own registry."""
    names, backends = (_texts_by_group(memory, c10d, table) for table in ("_pg_names", "_pg_backend_config"))
    found = []
    for group, members in memory.items(c10d["_pg_group_ranks"]) if "_pg_group_ranks" in c10d else ():
        with contextlib.suppress(Unreadable):
            if memory.kind(members)[1] & DICT:
                ranks = tuple(sorted(memory.integer(rank) for rank, _ in memory.items(members)))
                found.append((group, ranks))
    # init_process_group makes the default group first, and a dict keeps its order.
    return tuple(
        Group(address=group, name=names.get(group), ranks=ranks, default=index == 0, backend=backends.get(group))
        for index, (group, ranks) in enumerate(found)
    )


def _texts_by_group(memory: Memory, c10d: dict[str, int], table: str) -> dict[int, str]:
    """A dict of strings by process group; empty where this torch has none of that name."""
    found: dict[int, str] = {}
    for group, text in memory.items(c10d[table]) if table in c10d else ():
        with contextlib.suppress(Unreadable):
            found[group] = memory.text(text)
    return found
