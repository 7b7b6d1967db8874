"""Pickles that are made to do harm when they are loaded."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from hangdoc.plain_pickle import unpickle
from hangdoc.untrusted import UntrustedError
from tests.hostile.fuzz.bounds import bounded

MOST = 1_000_000
_LONG = struct.pack("<I", 0x7FFF_FFFF)
_LONGEST = struct.pack("<Q", 1 << 62)


class _Runs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


def _ten_times(levels: int) -> bytes:
    """Lists, each of which has the one before it ten times: 12 bytes a level, and ten to the power of the levels as values."""
    raw = b"\x80\x04]\x94"
    for level in range(levels):
        raw += b"](" + 10 * (b"h" + bytes([level])) + b"e\x94"
    return raw + b"."


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "called"
    dump = {"version": "2.10", "entries": [{"record_id": _Runs(path)}]}
    for partly in (False, True):
        with pytest.raises(UntrustedError, match="holds more than plain values"):
            unpickle(pickle.dumps(dump, protocol), MOST, partly)
    assert not path.exists()
    pickle.loads(pickle.dumps(_Runs(path), protocol))  # noqa: S301
    assert path.exists()  # it would have been called


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x02(ios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02X\x01\x00\x00\x00xP.",
        b"\x80\x02Px\n.",
        b"\x80\x05\x97.",
        b"\x80\x02(}ob.",
    ],
    ids=["protocol 0", "global", "inst", "stack global", "extension", "persistent", "persistent text", "buffer", "build"],
)  # fmt: skip
def test_what_names_a_function_or_an_object_is_refused(raw: bytes) -> None:
    with pytest.raises(UntrustedError, match=r"."):
        unpickle(raw, MOST)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x02Nr" + _LONG + b".",
        b"\x80\x05\x96" + _LONGEST + b".",
        b"\x80\x04\x8e" + _LONGEST + b".",
        b"\x80\x02X" + _LONG + b"x.",
        b"\x80\x04\x8d" + _LONGEST + b"x.",
        b"\x80\x04\x95" + _LONGEST + b"N.",
        b"\x80\x02\x8b" + _LONG + b"x.",
        b"\x80\x02I" + b"9" * 5_000_000 + b"\n.",
        b"\x80\x02" + b"]" * 5_000_000 + b".",
        b"\x80\x02" + b"}" * 5_000_000 + b".",
        b"\x80\x02" + b"(" * 5_000_000 + b".",
        b"\x80\x02N" + b"q\x00" * 5_000_000 + b".",
        b"\x80\x04N" + b"\x94" * 5_000_000 + b".",
        b"\x80\x02Nq\x00](" + b"h\x00" * 5_000_000 + b"e.",
        b"\x80\x02" + b"](" * 500_000 + b"e" * 500_000 + b".",
        b"\x80\x02" + b"]" + b"]\x61" * 900_000 + b".",
        b"\x80\x02" + b"N\x85" * 400_000 + b".",
        b"\x80\x02N" + b"\x85" * 900_000 + b".",
        _ten_times(30),
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02]q\x00(h\x00h\x00h\x00e.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00xh\x00s.",
        b"\x80\x02]q\x00](h\x00e(h\x00e.",
        b"\x80\x04" + b"\x95\x00\x00\x00\x00\x00\x00\x00\x00" * 2_000_000 + b".",
        b"\x80\x02" * 3_000_000 + b".",
    ],
    ids=[
        "memo index", "byte array", "bytes", "text of 2 GiB", "text of 4 EiB", "frame", "integer", "digits", "lists", "dicts",
        "marks", "puts", "memoize", "gets", "deep marks", "deep lists", "tuples", "deep tuples", "shared lists", "itself",
        "itself often", "own value", "left over", "frames", "protocols",
    ],
)  # fmt: skip
def test_a_bomb_is_refused_within_bounds(raw: bytes) -> None:
    for partly in (False, True):
        with bounded(seconds=6, size=250 << 20):
            try:
                value = unpickle(raw, MOST, partly).value
            except UntrustedError as error:
                assert str(error)
            else:  # an index of the memo is only a number here, and the length of a frame is not used
                assert value is None
                assert raw[3:4] == b"r" or raw[2:3] == b"\x95"
