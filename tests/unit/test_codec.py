"""Bundles: there and back, and every way in which one can be wrong."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hangdoc import codec
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Counter, Progress, Runtime, merge
from tests.unit.builders import LOOP, frame, local, rank, snapshot, stack, train

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


def test_a_frame_at_which_many_ranks_are_is_written_once_and_read_as_one() -> None:
    many = snapshot(*(rank(n, frame("forward", 7), train(12, locals=(local("n", n, address=n),))) for n in range(8)))
    plain = gzip.decompress(codec.encode(many))
    assert plain.count(b'"forward"') == 1 and plain.count(LOOP.header.encode()) == 1
    again = codec.decode(codec.encode(many))
    assert again == many
    first, last = (one.stack.threads[0].frames for one in (again.hosts[0].processes[0], again.hosts[0].processes[7]))  # type: ignore[union-attr]
    assert first[0] is last[0] and first[1].locals != last[1].locals


def test_hosts_at_the_same_places_share_their_frames() -> None:
    one, other = (codec.decode(codec.encode(snapshot(rank(n, frame("forward", 7), train(12))))) for n in (0, 1))
    ours, theirs = (each.hosts[0].processes[0].stack.threads[0].frames for each in (one, other))  # type: ignore[union-attr]
    assert ours is theirs


def test_what_ranks_have_in_common_is_written_once_and_read_as_one() -> None:
    runtime = Runtime(python="3.11.7", executable="/usr/bin/python3", torch="2.13.0")
    counted = [
        Progress(counters=(Counter(name="step", function="train", file="/t.py", before=n, after=n),)) for n in (7, 8)
    ]
    many = snapshot(*(rank(n, train(12), runtime=runtime, progress=counted[n == 3]) for n in range(8)))
    plain = gzip.decompress(codec.encode(many))
    assert plain.count(b"3.11.7") == 1 and plain.count(b'"before":7') == 1
    again, elsewhere = codec.decode(codec.encode(many)), codec.decode(codec.encode(many))
    assert again == many
    first, last = again.hosts[0].processes[0], again.hosts[0].processes[7]
    assert first.runtime is last.runtime is elsewhere.hosts[0].processes[0].runtime
    assert first.progress is last.progress


def test_threads_that_stand_still_are_written_once() -> None:
    stands, moves = rank(0, train(12)), rank(1, train(12), stack_before=stack(train(13)))
    written = json.loads(gzip.decompress(codec.encode(snapshot(stands, moves))))
    first, second = (process["stack_before"] for process in written["hosts"][0]["processes"])
    assert first.get("as_later") and "threads" not in first and len(second["threads"]) == 1
    again = codec.decode(codec.encode(snapshot(stands, moves)))
    assert again == snapshot(stands, moves)
    one = again.hosts[0].processes[0]
    assert one.stack.threads is one.stack_before.threads  # type: ignore[union-attr]


def test_a_bundle_of_schema_3_is_read() -> None:
    older = msgspec.to_builtins(WHOLE) | {"schema": "hangdoc.snapshot/3"}
    assert codec.decode(gzip.compress(json.dumps(older).encode())) == WHOLE


def test_a_bundle_with_whole_frames_in_every_thread_is_read() -> None:
    older = msgspec.to_builtins(WHOLE) | {"schema": "hangdoc.snapshot/2"}
    assert codec.decode(gzip.compress(json.dumps(older).encode())) == WHOLE


@pytest.mark.parametrize(("table", "variables"), [("stack", 99), ("locals", 99)])
def test_a_reference_to_nothing_is_damage(table: str, variables: int) -> None:
    whole = snapshot(rank(0, train(12, locals=(local("n", 1),))))
    written = json.loads(gzip.decompress(codec.encode(whole)))
    thread = written["hosts"][0]["processes"][0]["stack"]["threads"][0]
    thread[table] = variables if table == "stack" else [variables] * len(written["table"]["stacks"][0])
    with pytest.raises(codec.BundleError, match="damaged"):
        codec.decode(gzip.compress(json.dumps(written).encode()))


def test_a_reference_to_no_part_is_damage() -> None:
    written = json.loads(gzip.decompress(codec.encode(snapshot(rank(0, train(12), progress=Progress(counters=()))))))
    written["hosts"][0]["processes"][0]["parts"] = [99]
    with pytest.raises(codec.BundleError, match="damaged"):
        codec.decode(gzip.compress(json.dumps(written).encode()))


@pytest.mark.parametrize("clock", ["wall_us", "monotonic_us"])
@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_clock_that_no_host_has_is_damage(clock: str, value: int) -> None:
    written = json.loads(gzip.decompress(codec.encode(snapshot(rank(0, train(12))))))
    written["hosts"][0][clock] = value
    with pytest.raises(codec.BundleError, match="damaged"):
        codec.decode(gzip.compress(json.dumps(written).encode()))


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


def test_older_observations_of_a_host_are_counted() -> None:
    first = snapshot(rank(0, train(5)))
    later = replace(first, hosts=tuple(replace(host, taken_at="2026-01-01T00:01:00+00:00") for host in first.hosts))
    merged = merge((first, later), ("halo.hangdoc", "objs.hangdoc"))
    assert [host.taken_at for host in merged.hosts] == ["2026-01-01T00:01:00+00:00"]
    text = (
        "not used: halo.hangdoc of 2026-01-01 00:00:00 UTC, because objs.hangdoc of 2026-01-01 00:01:00 UTC observed the same "
        "host later (h0). Diagnose the bundles of different runs one at a time"
    )
    assert merged.unused == (text,)
    assert merge((later, first), ("objs.hangdoc", "halo.hangdoc")) == merged
    assert diagnose(merged).problems[0] == text
