"""Bundles as text, names of hosts, and many answers as one snapshot."""

import random
import time
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc import bundle_text, codec
from hangdoc.fleet.gather import combine
from hangdoc.fleet.hosts import HostsError, expand
from hangdoc.fleet.session import MARK, run_session
from hangdoc.fleet.transport import HostReply, Transport, run
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Snapshot, merge
from hangdoc.version import __version__
from tests.unit.builders import c10d, rank, snapshot, train


def read(lines: list[str]) -> bundle_text.Reader:
    reader = bundle_text.Reader()
    for line in lines:
        reader.feed(line.encode())
    return reader


def test_a_bundle_survives_banners_before_and_after() -> None:
    raw = random.Random(1).randbytes(10_000)  # noqa: S311
    lines = [bundle_text.begin("0.1.0", 12.5), *bundle_text.lines(raw)]
    reader = read(["Welcome to node1!", "", *lines, "bye"])
    assert (reader.raw, reader.version, reader.clock) == (raw, "0.1.0", 12.5)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda lines: [lines[0], "hello there", *lines[1:]], "mixed"),
        (lambda lines: [lines[0], lines[1][:-8] + "AAAAAAAA", *lines[2:]], "corrupted"),
        (lambda lines: [lines[0].replace("HANGDOC 1", "HANGDOC 7"), *lines[1:]], "another bundle format"),
    ],
)
def test_what_is_no_bundle_is_refused(spoil: object, why: str) -> None:
    lines = [bundle_text.begin("0.1.0", 1.0), *bundle_text.lines(random.Random(2).randbytes(3000))]  # noqa: S311
    assert callable(spoil)
    with pytest.raises(bundle_text.BundleTextError, match=why):
        read(spoil(lines))


def test_a_bundle_without_an_end_is_none() -> None:
    assert read([bundle_text.begin("0.1.0", 1.0), *bundle_text.lines(b"x" * 9000)][:-1]).raw is None


def test_a_bundle_of_any_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_text, "MAX_BYTES", 10_000)
    with pytest.raises(bundle_text.BundleTextError, match="more than"):
        read([bundle_text.begin("0.1.0", 1.0), *["A" * 4096] * 4])


def test_names_of_hosts() -> None:
    assert expand("node[0-2],x") == ("node0", "node1", "node2", "x")
    for wrong in ("node[0-", "-oProxyCommand=x", "a;b", "slurm:1;2", "node[0-100001]", "@nosuchgroup", ""):
        with pytest.raises(HostsError):
            expand(wrong)


def test_a_huge_range_is_refused_before_it_is_expanded() -> None:
    """ClusterShell takes ten seconds for ten million hosts, and fails with an AssertionError above that."""
    for huge in ("node[0-9999999]", "node[0-999999999]", "n[1-9][0-99999999999999999999999]"):
        began = time.monotonic()
        with pytest.raises(HostsError, match="a range of more than 100000 hosts"):
            expand(huge)
        assert time.monotonic() - began < 1
    assert expand("build-1-300000") == ("build-1-300000",)  # a name, no range


def answered(name: str, one: Snapshot, **more: object) -> HostReply:
    answer = HostReply(name, ahead_seconds=0.5)
    answer.reader.version = __version__
    host = replace(one.hosts[0], **more)
    answer.reader.raw = codec.encode(replace(one, hosts=(host,)))
    return answer


def one(number: int) -> Snapshot:
    return snapshot(rank(number, *c10d("all_reduce"), train(15), local_world=1), silence=None)


def test_hosts_that_call_themselves_alike_are_told_apart() -> None:
    found = combine([answered(f"n{n}", one(n), machine_id=f"m{n}") for n in range(2)], 1.0)
    assert [host.name for host in found.hosts] == ["n0", "n1"]
    assert [host.clock_ahead_seconds for host in found.hosts] == [0.5, 0.5]
    (job,) = diagnose(found).jobs
    assert [view.host for view in job.ranks] == ["n0", "n1"]


def test_a_machine_under_two_names_counts_once() -> None:
    found = combine([answered(name, one(0), machine_id="m") for name in ("a", "b")], 1.0)
    assert len(found.hosts) == 1
    assert [(u.host, u.why) for u in found.unreached] == [("b", "it is the same machine as a")]


def test_who_sends_nothing_is_unseen_with_the_reason() -> None:
    silent = HostReply("n1", why="no answer within 20 s")
    broken = answered("n2", one(2), machine_id="m2")
    broken.reader.raw = b"\x1f\x8bnonsense"
    found = combine([answered("n0", one(0), machine_id="m0"), silent, broken], 1.0)
    answer = diagnose(found)
    assert "n1: no answer within 20 s" in answer.problems
    assert any(problem.startswith("n2: its bundle is damaged") for problem in answer.problems)
    (job,) = answer.jobs
    assert "could not reach n1 (no answer within 20 s) and 1 more host" in job.unseen[0].why


def test_what_to_type_says_where() -> None:
    stopped = snapshot(rank(1, train(12), local_world=1, state="T"), silence=None)
    found = combine([answered("n0", one(0), machine_id="m0"), answered("n1", stopped, machine_id="m1")], 1.0)
    (job,) = diagnose(found).jobs
    assert job.findings[0].code == "HD302"
    assert job.findings[0].commands[0] == "kill -CONT 101   # on n1"


def test_merging_twice_changes_nothing() -> None:
    found = combine([answered(f"n{n}", one(n), machine_id=f"m{n}") for n in range(2)], 1.0)
    assert merge((found,)).hosts == found.hosts
    alike = (replace(one(0).hosts[0], machine_id="a"), replace(one(1).hosts[0], machine_id="b"))
    assert [host.name for host in merge((Snapshot(hangdoc="t", hosts=alike),)).hosts] == ["h0#1", "h0#2"]


def test_no_word_of_a_command_is_shell(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    way = Transport(
        via=("echo", f"$(touch {harm})", f"; touch {harm};", "%hosts", "{host}"), host_timeout=5, timeout=10
    )
    (answer,) = run(("n1",), ("a b", f"`touch {harm}`"), way)
    assert answer.raw is None
    assert answer.printed == [f"$(touch {harm}) ; touch {harm}; %hosts n1 hangdoc a b `touch {harm}`"]
    assert not harm.exists()


def test_a_host_that_ends_after_the_last_round_has_taken_part(tmp_path: Path) -> None:
    """The quick one has answered and ended before the slow one answers; the silent one ends with no answer."""
    (tmp_path / "host").write_text(
        f"#!/bin/sh\nread line\n[ $1 = silent ] && exit 0\n[ $1 = slow ] && sleep 0.5\necho '{MARK.decode()}'$1\n"
    )
    (tmp_path / "host").chmod(0o755)

    def script() -> Generator[bytes, Mapping[str, bytes], set[bytes]]:
        return set((yield b"go").values())

    via = Transport(via=(f"{tmp_path}/host", "{host}"), host_timeout=60, timeout=60)
    said, left = run_session(("quick", "slow", "silent"), (), via, script())
    assert said == {b"quick", b"slow"}
    assert left == {"silent": "it sent no bundle (exit code 0)"}


@pytest.mark.parametrize("name", ["ssh", "site-ssh", "gcssh"])
def test_a_program_named_after_ssh_joins_its_words(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    (tmp_path / name).chmod(0o755)
    via = Transport(via=(f"{tmp_path}/{name}", "{host}"), remote_command=("echo",), host_timeout=60, timeout=60)
    (reply,) = run(["a"], ("a  b", "(c)"), via)
    assert reply.printed == ["a  b (c)"]


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    """A script of the site may have started ssh."""
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    via = Transport(via=("sh", "-c", script, "{host}"), host_timeout=1, timeout=60)
    (reply,) = run(["a"], ("hangdoc",), via)
    assert "no reply" in (reply.why or "")
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}")
    end = time.monotonic() + 60
    while child.exists() and "Z" not in (child / "stat").read_text().rpartition(")")[2]:
        assert time.monotonic() < end
        time.sleep(0.05)
