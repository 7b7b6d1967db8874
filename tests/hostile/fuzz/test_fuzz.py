"""A minute of fuzzing in CI, some seconds elsewhere, and what was found before."""

import gzip
import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.observe.stacks import pyspy
from hangdoc.observe.torch.recorder_dumps import read
from tests.hostile.fuzz import Target
from tests.hostile.fuzz.bounds import bounded
from tests.hostile.fuzz.bundles import read_bundle
from tests.hostile.fuzz.targets import TARGETS

_IN_CI = bool(os.environ.get("CI"))
_SHARE = 1.0 if _IN_CI else 0.2


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_attacks(target: Target) -> None:
    @settings(max_examples=max(1, int(target.examples * _SHARE)), deadline=None, database=None, derandomize=_IN_CI)
    @given(st.integers(0, (1 << 64) - 1))
    def attack(seed: int) -> None:
        with bounded():
            target.attack(Random(seed))  # noqa: S311

    attack()


_DEEP = b"[" * 90_000 + b"]" * 90_000


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x": ' + _DEEP + b"}",
        b'{"entries": [{"collective_seq_id": 1, "time_created_ns": 1' + b"0" * 400 + b"}]}",
        b'{"read_ns": 1' + b"0" * 400 + b', "entries": []}',
        b'{"entries": [{"collective_seq_id": 99999999999999999999}]}',
        b'{"entries": [' + b"{}," * 3_000_000 + b"{}]}",
        b'{"entries": [{"input_sizes": [' + b"[1]," * 3_000_000 + b"[1]]}]}",
    ],
    ids=["deep", "created", "read", "number", "entries", "sizes"],
)
def test_a_dump_that_is_none(raw: bytes) -> None:
    with bounded(size=100 << 20), pytest.raises(ValueError, match=r"."):
        read(raw, "test")


@pytest.mark.parametrize(
    "raw", [_DEEP, b'[{"x": ' + _DEEP + b"}]", b'[{"frames": [{"name": "\xff", "filename": "x"}]}]', b" " * (40 << 20)],
    ids=["deep", "deep-inside", "bytes", "huge"],
)  # fmt: skip
def test_stacks_that_are_none(raw: bytes) -> None:
    with bounded(), pytest.raises(pyspy.Refused):
        pyspy.parse(raw, 0.0)


@pytest.mark.parametrize(
    "plain",
    [
        _DEEP,
        b'{"schema": "hangdoc.snapshot/4", "hangdoc": "1", "hosts": [], "x": ' + _DEEP + b"}",
        b'{"schema": "hangdoc.snapshot/4", "hangdoc": "1", "hosts": [], "parts": ' + _DEEP + b"}",
        b'{"schema": "hangdoc.snapshot/4", "hangdoc": "1", "hosts": [], "table": ' + _DEEP + b"}",
    ],
    ids=["whole", "unknown", "parts", "table"],
)
def test_a_deep_bundle(plain: bytes) -> None:
    with bounded():
        read_bundle(gzip.compress(plain))
