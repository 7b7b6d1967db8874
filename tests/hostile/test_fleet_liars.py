"""Hosts that lie: an old bundle as new, the name of another machine, evidence that ends the decoder."""

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc import bundle_text, codec
from hangdoc.fleet.gather import combine
from hangdoc.fleet.transport import HostReply
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Host, Snapshot
from hangdoc.version import __version__
from tests.hostile.test_decoder import DEEP
from tests.unit.builders import c10d, rank, snapshot, train


def look(number: int, **more: object) -> Host:
    one = snapshot(rank(number, *c10d("all_reduce"), train(15), local_world=1), silence=None)
    return replace(one.hosts[0], **more)


def reply(name: str, host: Host, *nonce: str) -> HostReply:
    answer = HostReply(name, ahead_seconds=0.0)
    answer.reader.version = __version__
    answer.reader.raw = codec.encode(Snapshot(hangdoc="t", hosts=(host,)), *nonce)
    return answer


def test_an_old_bundle_is_not_new() -> None:
    found = combine(
        [reply("a", look(0, machine_id="m0"), "new"), reply("b", look(1, machine_id="m1"), "old")], 1.0, "new"
    )
    assert [host.asked_as for host in found.hosts] == ["a"]
    assert [one.why for one in found.unreached] == [
        "its bundle does not answer this request: it was saved earlier. Take a new look"
    ]


def test_who_claims_another_machine_does_not_silence_it() -> None:
    """Row 10: the honest evidence was dropped."""
    honest, liar = look(1, machine_id="m", name="n1"), look(0, machine_id="m", name="n1")
    for replies in ([("liar", liar), ("honest", honest)], [("honest", honest), ("liar", liar)]):
        found = combine([reply(*one) for one in replies], 1.0)
        assert sorted(host.name for host in found.hosts) == ["honest", "liar"]
        assert found.unreached == ()
        problems = diagnose(found).problems
        assert any("claim to be one machine but sent different processes" in problem for problem in problems)


def test_a_machine_that_is_reached_under_two_names_counts_once() -> None:
    replies = [reply(name, look(1, machine_id="m")) for name in ("a", "b")]
    liar = reply("c", look(0, machine_id="m"))
    found = combine([liar, *replies], 1.0)
    assert [host.asked_as for host in found.hosts] == ["a", "c"]
    assert [(one.host, one.why) for one in found.unreached] == [("b", "it is the same machine as a")]


def test_a_reply_is_one_host() -> None:
    answer = reply("a", look(0))
    answer.reader.raw = codec.encode(Snapshot(hangdoc="t", hosts=(look(0), look(1, name="other"))))
    assert combine([answer], 1.0).unreached[0].why == "its bundle contains 2 hosts"


def test_all_lines_of_a_host_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_text, "MAX_BYTES", 1000)
    answer = HostReply("a")
    for line in (bundle_text.begin("0.1.0", 1.0), *["A"] * 2000):
        answer.feed(line.encode())
    assert answer.why == "it sent more than 0 MiB"
    assert answer.reader.size == 0


FRAME = """
import sys, time
from hangdoc import bundle_text
print(bundle_text.begin("0.1.0", time.time()))
for line in bundle_text.lines(open(sys.argv[1], "rb").read()):
    print(line)
"""
BUNDLES = {
    "deep": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "x", "hosts": [], "more": %s}' % DEEP,
    "surrogate": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "\\ud800", "hosts": []}',
    "not text": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "\xff\xfe", "hosts": []}',
    "bomb": b" " * (200 << 20),
    "replayed": codec.encode(Snapshot(hangdoc="t", hosts=(look(0),))),
}


@pytest.mark.parametrize("kind", BUNDLES)
def test_any_bundle_is_the_reason_of_its_host(kind: str, tmp_path: Path) -> None:
    """Row 8: it ended `diagnose --hosts` and `watch --hosts`."""
    raw = BUNDLES[kind]
    (tmp_path / "bundle").write_bytes(raw if raw[:2] == b"\x1f\x8b" else gzip.compress(raw, 1))
    (tmp_path / "frame.py").write_text(FRAME)
    python = shlex.quote(sys.executable)
    (tmp_path / "host").write_text(
        f'#!/bin/sh\ncase "$1" in bad) exec {python} {tmp_path}/frame.py {tmp_path}/bundle;; esac\n'
        f'shift 2; exec {python} -m hangdoc "$@"\n'
    )
    (tmp_path / "host").chmod(0o755)
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "hangdoc", "diagnose", "--hosts",
         "bad,good", "--via", f"{tmp_path}/host {{host}}", "--remote-command", "x", "--json", "--host-timeout", "15"],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert "1 of 2 hosts answered (bad: its bundle " in problem
