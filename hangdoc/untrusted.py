"""The only decoder for what others send: bundles, state files, replies of hosts, answers of a rank's server.

Its input may be made to do harm. Sizes are limited before and after decompression. Whatever decoding raises becomes one error
with one clause: a text that is not UTF-8, too little memory, a deep nesting. msgspec counts the depth of its recursion, also for
fields that it skips, and raises RecursionError before the stack ends.
"""

import os
import stat
import zlib
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

MOST_TIMES = 200
"""How many times larger than its compressed form a document may be. Bundles are 3 to 40 times larger, and a gzip bomb 1,000."""
_ALWAYS_BYTES = 16 << 20
"""What a document may unpack to in any case."""
KEPT_BYTES = 1 << 20
"""Up to this size, a decoded value may be kept for the next host that sends the same bytes."""
_STEP_BYTES = 16 << 10
_PIECE_BYTES = 1 << 20
_MOST_WORDS = 200
T = TypeVar("T")


class UntrustedError(ValueError):
    """What was received can't be used. The text is one clause: `is truncated`, `is damaged (...)`."""


def decode(raw: bytes | bytearray | msgspec.Raw, kind: type[T], limit: int, *, strict: bool = True) -> T:
    """The value of this type in JSON of at most `limit` bytes. `strict` as in msgspec. Raises UntrustedError."""
    if len(raw) > limit:
        raise UntrustedError(f"has more than {size(limit)}")
    try:
        value: T = _decoder(kind, strict).decode(raw)  # type: ignore[arg-type]
        return value
    except RecursionError:
        why = "it is nested too deeply"
    except MemoryError:
        why = "it does not fit into the memory"
    except (ValueError, OverflowError) as error:  # msgspec.DecodeError and UnicodeError are ValueErrors
        why = str(error)[:_MOST_WORDS]
    raise UntrustedError(f"is damaged ({why})")


@lru_cache(32)
def _decoder(kind: Hashable, strict: bool) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind, strict=strict)


def unpack(packed: bytes, limit: int) -> bytearray:
    """The content of a gzip stream: at most `limit` bytes, and at most MOST_TIMES the size of the stream. It ends where one of
    these is exceeded, so a bomb costs a few MiB. Raises UntrustedError."""
    unpacker = zlib.decompressobj(wbits=31)
    plain = bytearray()
    try:
        for at in range(0, len(packed), _STEP_BYTES):
            left = packed[at : at + _STEP_BYTES]
            while left and not unpacker.eof:
                plain += unpacker.decompress(left, _PIECE_BYTES)
                left = unpacker.unconsumed_tail
                read = at + _STEP_BYTES - len(left)
                if len(plain) > min(limit, max(_ALWAYS_BYTES, MOST_TIMES * read)):
                    raise UntrustedError(f"unpacks to more than {size(min(limit, len(plain)))}")
    except zlib.error as error:
        raise UntrustedError(f"is damaged ({error})") from None
    except MemoryError:
        raise UntrustedError("does not fit into the memory") from None
    if not unpacker.eof:
        raise UntrustedError("is truncated")
    return plain


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes. It never waits: a pipe or a device is refused. Raises OSError, and
    UntrustedError for a file that is too large or not regular."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(file, "rb") as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError("is not a regular file")
        if status.st_size > limit:
            raise UntrustedError(f"has more than {size(limit)}")
        raw = stream.read(limit + 1)  # it may grow, and files of /proc have size 0
    if raw is not None and len(raw) > limit:
        raise UntrustedError(f"has more than {size(limit)}")
    return raw or b""


def size(count: int) -> str:
    """A number of bytes in words."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"
