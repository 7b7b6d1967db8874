"""Sections and symbols of an ELF file on disk (elf(5)).

What the dynamic linker does not need, local symbols and debug information, is in the file alone, not in the memory of the process
(`mapped_elf` reads what is there). The file belongs to a stranger: every size in it is a claim.
"""

import struct
from collections.abc import Callable, Collection
from typing import NamedTuple

from hangdoc.observe.memory.memory import Unreadable

_HEADER, _PROGRAM_HEADER, _SECTION_HEADER, _SYMBOL = 64, 56, 64, 24
_MAX_HEADERS = 256
_MAX_NAMES = 1 << 16
_MAX_SYMBOLS, _MAX_STRINGS = 8 << 20, 32 << 20
"""Bytes of a symbol table and of its names. libnccl has 0.3 and 0.5 MB."""
_MAX_NOTE = 4096
_PT_LOAD, _SHT_NOBITS, _STT_OBJECT = 1, 8, 1
_NT_GNU_BUILD_ID = 3
_MAX_TAILS = 64


class Section(NamedTuple):
    """A section."""

    address: int
    """Of its first byte in memory, before the file is moved to where it is loaded; 0 if it is not loaded."""
    offset: int
    size: int


class ElfFile:
    """The ELF file that `read` reads: the bytes at (offset, size), fewer at the end of the file. Raises Unreadable for anything
    but a 64-bit little-endian ELF file with sections."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        header = self._read_exactly(0, _HEADER)
        if header[:6] != b"\x7fELF\x02\x01":
            raise Unreadable("it is not a 64-bit little-endian ELF file")
        (self.machine,) = struct.unpack_from("<H", header, 18)
        """`e_machine`: the number of the architecture (include/uapi/linux/elf-em.h)."""
        programs, sections = struct.unpack_from("<QQ", header, 32)
        sizes = struct.unpack_from("<5H", header, 54)
        program_size, program_count, section_size, section_count, names_at = sizes
        if (program_size, section_size) != (_PROGRAM_HEADER, _SECTION_HEADER) or not (
            0 < program_count <= _MAX_HEADERS and names_at < section_count <= _MAX_HEADERS
        ):
            raise Unreadable("it has no sections, or is an ELF file of an unknown form")
        segments = struct.iter_unpack("<IIQQ32x", self._read_exactly(programs, program_count * _PROGRAM_HEADER))
        self.first_address = next((at for kind, _, offset, at in segments if (kind, offset) == (_PT_LOAD, 0)), 0)
        """Where the first byte of the file is in memory, before the file is moved to where it is loaded."""
        raw = self._read_exactly(sections, section_count * _SECTION_HEADER)
        entries = list(struct.iter_unpack("<IIQQQQ24x", raw))
        names = self._read(entries[names_at][4], min(entries[names_at][5], _MAX_NAMES))
        self.sections: dict[str, Section] = {}
        for name_at, kind, _flags, address, offset, size in entries:
            name = names[name_at:].split(b"\0", 1)[0].decode("utf-8", "replace")
            self.sections.setdefault(name, Section(address, offset, 0 if kind == _SHT_NOBITS else size))

    def contents(self, name: str, most: int) -> bytes:
        """The first `most` bytes of a section; empty if there is none."""
        section = self.sections.get(name)
        return self._read(section.offset, min(section.size, most)) if section is not None else b""

    def build_id(self) -> str:
        """The build id, hexadecimal; empty if the file has none."""
        return build_id_of(self.contents(".note.gnu.build-id", _MAX_NOTE))

    def variables(self, names: Collection[str]) -> dict[str, int]:
        """The addresses of variables, local ones too, before the file is moved to where it is loaded. Of several with the same
        name, the first. Raises Unreadable if the file has no table of symbols, or a huge one."""
        table, strings = self.sections.get(".symtab"), self.sections.get(".strtab")
        if table is None or strings is None or not table.size:
            raise Unreadable("its symbols were stripped")
        if table.size > _MAX_SYMBOLS or strings.size > _MAX_STRINGS:
            raise Unreadable("it has too many symbols")
        texts = self._read_exactly(strings.offset, strings.size)
        places = {at: name for name in names for at in _find_positions(texts, name.encode() + b"\0")}
        addresses: dict[str, int] = {}
        raw = self._read_exactly(table.offset, table.size // _SYMBOL * _SYMBOL)
        for text, info, section, value in struct.iter_unpack("<IBxHQ8x", raw):
            if text in places and section and info & 0xF == _STT_OBJECT:
                addresses.setdefault(places[text], value)
        return addresses

    def _read_exactly(self, offset: int, size: int) -> bytes:
        raw = self._read(offset, size)
        if len(raw) != size:
            raise Unreadable("it ends too early")
        return raw


def build_id_of(note: bytes) -> str:
    """The build id in a note section (elf(5), `Elf64_Nhdr`), hexadecimal; empty if there is none."""
    if len(note) < 16:
        return ""
    name_size, size, kind = struct.unpack_from("<3I", note)
    return note[16 : 16 + size].hex() if (name_size, kind) == (4, _NT_GNU_BUILD_ID) and 0 < size <= 64 else ""


def _find_positions(texts: bytes, name: bytes) -> list[int]:
    """Where a name begins. The linker may store it as the end of a longer one."""
    positions: list[int] = []
    at = texts.find(name)
    while at >= 0 and len(positions) < _MAX_TAILS:
        positions.append(at)
        at = texts.find(name, at + 1)
    return positions
