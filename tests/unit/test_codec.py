"""Bundles: there and back, and every way in which one can be wrong."""

import gzip
import json
from pathlib import Path

import pytest

from hangdoc import codec
from hangdoc.snapshot import merge
from tests.unit.builders import rank, snapshot, train

WHOLE = snapshot(rank(0, train(12)), rank(1, train(12)))


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "x.hangdoc"
    codec.write(WHOLE, path)
    assert codec.read(path) == WHOLE
    assert path.stat().st_mode & 0o777 == 0o600
    assert codec.encode(WHOLE) == path.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b"hello", "not a hangdoc bundle"),
        (codec.encode(WHOLE)[:-40], "truncated"),
        (codec.encode(WHOLE)[:60] + b"\xff" * 40, "damaged"),
        (gzip.compress(b"[1, 2"), "no JSON"),
        (gzip.compress(b"\xff\xfe"), "no JSON"),
        (gzip.compress(b"[]"), "no JSON"),
        (gzip.compress(json.dumps({"schema": "other/1"}).encode()), "its schema is"),
        (
            gzip.compress(json.dumps({"schema": "hangdoc.snapshot/9", "hangdoc": "7.0"}).encode()),
            "written by hangdoc 7.0",
        ),
        (gzip.compress(json.dumps({"schema": "hangdoc.snapshot/2", "hangdoc": "x", "hosts": 3}).encode()), "damaged"),
    ],
)
def test_what_is_no_bundle_gets_one_sentence(raw: bytes, words: str) -> None:
    with pytest.raises(codec.BundleError, match=words) as caught:
        codec.decode(raw, "x.hangdoc")
    assert str(caught.value).count("\n") == 0


def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(codec.BundleError, match="cannot write"):
        codec.write(WHOLE, tmp_path / "absent" / "x.hangdoc")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(codec.BundleError, match="cannot write"):
        codec.write(WHOLE, folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_merge_keeps_the_newest_look_at_a_host() -> None:
    from msgspec.structs import replace

    later = replace(WHOLE, hosts=(replace(WHOLE.hosts[0], taken_at="2027-01-01"),))
    elsewhere = replace(WHOLE, hosts=(replace(WHOLE.hosts[0], name="a0"),))
    merged = merge((WHOLE, later, elsewhere))
    assert [(host.name, host.taken_at) for host in merged.hosts] == [
        ("a0", WHOLE.hosts[0].taken_at),
        ("h0", "2027-01-01"),
    ]
    assert merge((elsewhere, WHOLE, later)) == merged
    with pytest.raises(ValueError, match="nothing"):
        merge(())
