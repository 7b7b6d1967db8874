"""Python frames of recorded calls: a code object and the offset of an instruction, read in the process as file, function, line.

Where a code object stores its parts is learned from the functions of the module `os`, as `memory.calibrate` learns the rest:
there is no table of offsets by version. A code object is read once. It is read again if the memory at its address has changed,
because it may have been replaced by another one.
"""

import contextlib
import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from hangdoc.observe.memory.line_tables import line_before
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import BYTES, UNICODE, Memory, Unreadable
from hangdoc.program import is_library
from hangdoc.snapshot import Frame

_CODE_BYTES = 192
"""Of a code object: more than is before its table of locations."""
_FUNCTION_BYTES = 96
_FUNCTIONS = ("makedirs", "removedirs", "renames", "walk", "getenv")
"""Functions of `os` in the order of their lines."""
_FILES = ("/os.py", "<frozen os>")
_MAX_TABLE = 1 << 16
_MAX_TEXT = 1_000
_MAX_CODES = 20_000
_MAX_LINE = 10_000_000
_BYTES_HEADER = 32


class CodeLayout(NamedTuple):
    """Offsets in a code object."""

    file: int
    name: int
    table: int
    """`co_linetable`."""
    first_line: int


class _Code(NamedTuple):
    """A code object that was read."""

    parts: tuple[int, int, int, int]
    """Addresses of file, name and table, and the first line: as long as they are the same, it is the same code object."""
    file: str
    name: str
    table: bytes


class Codes:
    """The code objects of one process."""

    def __init__(self, image: Image | None) -> None:
        self._image = image
        self._layout: CodeLayout | None = None
        self._tried = False
        self._codes: dict[int, _Code] = {}
        self._frames: dict[tuple[int, int], Frame] = {}

    def learn(self, memory: Memory) -> None:
        """Learn where code objects store their parts, once."""
        if self._image is not None and not self._tried:
            with contextlib.suppress(Unreadable):
                module = memory.find_named(self._image.modules, ("os",)).get("os")
                functions = memory.namespace(module, _FUNCTIONS) if module is not None else {}
                self._layout = _learn(memory, [functions[name] for name in _FUNCTIONS if name in functions])
                self._tried = module is not None

    def refresh(self, memory: Memory, vectors: Iterable[bytes]) -> None:
        """Read the code objects that the frames in `vectors` have, as far as they are new or have changed."""
        layout = self._layout
        if layout is None:
            return
        addresses = {address for vector in set(vectors) for address, _ in struct.iter_unpack("<Qi4x", vector)}
        if len(self._codes) + len(addresses) > _MAX_CODES:
            self._codes.clear()
            self._frames.clear()
        blocks = memory.read_many((address, _CODE_BYTES) for address in addresses)
        for (address, _), raw in blocks.items():
            parts = _parts(raw, layout)
            old = self._codes.get(address)
            if old is not None and old.parts == parts:
                continue
            if old is not None:
                del self._codes[address]
                for key in [key for key in self._frames if key[0] == address]:
                    del self._frames[key]
            with contextlib.suppress(Unreadable):
                self._codes[address] = _read_code(memory, parts)

    def frame(self, address: int, offset: int) -> Frame | None:
        """The frame at the instruction at `offset` (bytes) in a code object; None if that could not be read."""
        key = address, offset
        frame = self._frames.get(key)
        if frame is None and (code := self._codes.get(address)) is not None and self._image is not None:
            line = line_before(self._image.version, code.table, code.parts[3], offset // 2)
            frame = Frame(function=code.name, file=code.file, line=line, library=is_library(code.file))
            self._frames[key] = frame
        return frame


def _parts(raw: bytes, layout: CodeLayout) -> tuple[int, int, int, int]:
    file, name, table = (int.from_bytes(raw[at : at + 8], "little") for at in (layout.file, layout.name, layout.table))
    return file, name, table, int.from_bytes(raw[layout.first_line : layout.first_line + 4], "little", signed=True)


def _read_code(memory: Memory, parts: tuple[int, int, int, int]) -> _Code:
    """The code object with these parts. Raises Unreadable for anything else."""
    file, name, table, first_line = parts
    if not memory.kind(table)[1] & BYTES or not 0 <= first_line < _MAX_LINE:
        raise Unreadable("not a code object")
    size = min(memory.word(table + 16), _MAX_TABLE)
    texts = memory.text(file)[:_MAX_TEXT], memory.text(name)[:_MAX_TEXT]
    return _Code(parts, *texts, memory.read(table + _BYTES_HEADER, size))


def _learn(memory: Memory, functions: list[int]) -> CodeLayout | None:
    """The layout, from functions in the order of their lines; None if they are of an unknown form, or were replaced."""
    for function_at in range(16, _FUNCTION_BYTES, 8):
        codes: list[bytes] = []
        with contextlib.suppress(Unreadable):
            for function in functions:
                code = memory.word(function + function_at)
                if memory.kind(code)[0] == "code":
                    codes.append(memory.read(code, _CODE_BYTES))
        if len(codes) == len(functions) == len(_FUNCTIONS):
            return _learn_from(memory, codes)
    return None


def _learn_from(memory: Memory, codes: list[bytes]) -> CodeLayout | None:
    file = name = table = None
    for at in range(16, _CODE_BYTES, 8):
        address = int.from_bytes(codes[-1][at : at + 8], "little")
        with contextlib.suppress(Unreadable):
            flags = memory.kind(address)[1]
            if flags & UNICODE and file is None and memory.text(address).endswith(_FILES):
                file = at
            elif flags & UNICODE and file is not None and name is None and memory.text(address) == _FUNCTIONS[-1]:
                name = at
            elif (
                flags & BYTES and name is not None
            ):  # the first bytes after the name; since 3.11 a qualified name is between
                table = at
                break
    for at in range(24, 112, 4):
        lines = [int.from_bytes(code[at : at + 4], "little", signed=True) for code in codes]
        ascending = all(before + 2 < after for before, after in pairwise(lines))
        if (
            file is not None
            and name is not None
            and table is not None
            and ascending
            and 1 < lines[0] < lines[-1] < 10_000
        ):
            return CodeLayout(file, name, table, at)
    return None
