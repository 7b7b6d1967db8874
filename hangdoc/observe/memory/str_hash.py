"""The hash of a str in another process, with which its dicts are searched as the process itself does it.

Each process has a secret of its own (PYTHONHASHSEED). SipHash makes a number of the secret and the characters: SipHash-1-3 since
3.11, SipHash-2-4 before (Python/pyhash.c). Which one it is shows in strings whose hash the process has stored. Of two thousand
modules, it finds a name in 50 us; to read all names takes 6 ms.
"""

import struct
from typing import NamedTuple

KINDS = ((1, 3), (2, 4))
"""Rounds for each eight bytes and at the end."""
_MASK = (1 << 64) - 1


class StrHash(NamedTuple):
    """How one process hashes."""

    secret: tuple[int, int]
    rounds: tuple[int, int]

    def hash(self, text: str) -> int:
        """The hash of an ASCII str, as an unsigned word. Raises UnicodeEncodeError for any other."""
        raw = text.encode("ascii")
        if not raw:
            return 0
        first, second = self.secret
        state = (
            first ^ 0x736F6D6570736575,
            second ^ 0x646F72616E646F6D,
            first ^ 0x6C7967656E657261,
            second ^ 0x7465646279746573,
        )
        whole = len(raw) // 8 * 8
        last = int.from_bytes(raw[whole:], "little") | (len(raw) & 0xFF) << 56
        each, end = self.rounds
        for (word,) in (*struct.iter_unpack("<Q", raw[:whole]), (last,)):
            a, b, c, d = state
            a, b, c, d = _mix((a, b, c, d ^ word), each)
            state = (a ^ word, b, c, d)
        a, b, c, d = state
        a, b, c, d = _mix((a, b, c ^ 0xFF, d), end)
        hashed = a ^ b ^ c ^ d
        return hashed if hashed != _MASK else _MASK - 1  # -1 means an error in CPython


def _mix(state: tuple[int, int, int, int], rounds: int) -> tuple[int, int, int, int]:
    a, b, c, d = state
    for _ in range(rounds):
        a = a + b & _MASK
        c = c + d & _MASK
        b = (b << 13 & _MASK | b >> 51) ^ a
        d = (d << 16 & _MASK | d >> 48) ^ c
        a = a << 32 & _MASK | a >> 32
        c = c + b & _MASK
        a = a + d & _MASK
        b = (b << 17 & _MASK | b >> 47) ^ c
        d = (d << 21 & _MASK | d >> 43) ^ a
        c = c << 32 & _MASK | c >> 32
    return a, b, c, d
