"""Line numbers from the location tables of CPython's code objects.

Sources: Objects/lnotab_notes.txt (3.10), InternalDocs/code_objects.md (since 3.11).
"""

_NO_LINE_3_10 = -128
_LONG, _NO_COLUMNS, _NO_LOCATION = 14, 13, 15
_ONE_LINE = (10, 11, 12)
_MORE_BITS, _BITS = 64, 63
_MAX_VARINT = 7
"""Bytes: no line number has more than 32 bits."""


def line_of(table: bytes, first_line: int, offset: int, version: tuple[int, int]) -> int:
    """The line of the instruction at `offset` (bytes) in a code object that begins at `first_line`. `version` is the
    interpreter's. Of an instruction without a line, or of a damaged table, the line before it."""
    return _line_3_10(table, first_line, offset) if version < (3, 11) else _line(table, first_line, offset)


def _line_3_10(table: bytes, line: int, offset: int) -> int:
    """Pairs of bytes: how many bytes of instructions, and by how many lines the line changes."""
    end = 0
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        change = table[at + 1] - 256 if table[at + 1] > 127 else table[at + 1]
        if change != _NO_LINE_3_10:
            line += change
        if offset < end:
            break
    return line


def _line(table: bytes, line: int, offset: int) -> int:
    """Entries of a byte with a code and the number of instructions, and of what the code says."""
    at = end = 0
    while at < len(table):
        code, end = table[at] >> 3 & 15, end + 2 * ((table[at] & 7) + 1)
        at += 1
        if code in (_NO_COLUMNS, _LONG):
            change, at = _varint(table, at)
            line += -(change >> 1) if change & 1 else change >> 1
            for _ in range(3 if code == _LONG else 0):
                _, at = _varint(table, at)
        elif code in _ONE_LINE:
            line += code - _ONE_LINE[0]
            at += 2
        elif code != _NO_LOCATION:
            at += 1
        if offset < end:
            break
    return line


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """A number of 6 bits a byte, lowest first, and what follows it."""
    value = 0
    for index, byte in enumerate(table[at : at + _MAX_VARINT]):
        value |= (byte & _BITS) << 6 * index
        if not byte & _MORE_BITS:
            return value, at + index + 1
    return value, len(table)
