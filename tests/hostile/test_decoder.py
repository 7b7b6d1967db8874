"""What others send: deep, large, slow and wrong documents cost little and are one sentence."""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hangdoc import codec, shared_ranks, untrusted
from hangdoc.snapshot import Alike
from hangdoc.watch.deliver import webhook
from hangdoc.watch.message_queue import Unreachable
from hangdoc.watch.state import Ledger, Message, StateError
from tests.unit.builders import rank, snapshot, train

DEEP = b"[" * 100_000 + b"]" * 100_000
DOCUMENTS = {
    "unknown field": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "x", "hosts": [], "more": %s}',
    "hosts": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "x", "hosts": %s}',
    "table": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "x", "hosts": [], "table": %s}',
    "parts": b'{"schema": "hangdoc.snapshot/4", "hangdoc": "x", "hosts": [], "parts": [%s]}',
    "whole": b"%s",
}


def hangdoc(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "hangdoc", *map(str, words)], capture_output=True, text=True, check=False, timeout=200
    )


@pytest.mark.parametrize("where", DOCUMENTS)
def test_a_deep_bundle_is_one_sentence(where: str, tmp_path: Path) -> None:
    """Row 8: RecursionError."""
    raw = gzip.compress(DOCUMENTS[where] % DEEP)
    assert len(raw) < 4096
    with pytest.raises(codec.BundleError):
        codec.decode(raw, "x.hangdoc")
    (tmp_path / "x.hangdoc").write_bytes(raw)
    done = hangdoc("diagnose", tmp_path / "x.hangdoc")
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert done.stderr.startswith(f"hangdoc: {tmp_path}/x.hangdoc is ")


def test_a_deep_state_file_is_one_sentence(tmp_path: Path) -> None:
    for number, raw in enumerate((DEEP, b'{"schema": "hangdoc.watch-state/2", "hangs": %s}' % DEEP, b"\xff\xfe")):
        path = tmp_path / f"state{number}"
        path.write_bytes(raw)
        with pytest.raises(StateError, match="is not a state file of hangdoc watch"):
            Ledger(path, print)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/tty", "socket", "endless"])
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    """Rows 5 and 14: a FIFO or /dev/zero as bundle."""
    path = tmp_path / "x.hangdoc"
    opened = socket.socket(socket.AF_UNIX)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        opened.bind(str(path))
    elif kind == "endless":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path = Path(kind)
    with opened:
        done = hangdoc("diagnose", path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        if path.parent == tmp_path:
            assert hangdoc("diagnose", tmp_path).returncode == 2
    with pytest.raises(StateError):
        Ledger(path, print)


def _peak_of(code: str) -> tuple[int, str]:
    """(MiB that Python code needs beyond its imports, what it printed)."""
    program = (
        "import resource, sys\nfrom hangdoc import codec, untrusted\nimport gzip\n"
        f"before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n{code}\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    *said, peak = done.stdout.splitlines()
    return int(peak), "\n".join(said)


def test_a_bomb_costs_little(tmp_path: Path) -> None:
    """Row 11: 2 GB of memory."""
    with gzip.open(tmp_path / "bomb.hangdoc", "wb", compresslevel=1) as file:
        for _ in range(1200):
            file.write(b" " * (1 << 20))
    code = f"""
from pathlib import Path
try:
    codec.read(Path({str(tmp_path / "bomb.hangdoc")!r}))
except codec.BundleError as error:
    print(error)"""
    peak, said = _peak_of(code)
    assert "unpacks to more than" in said
    assert peak < 100


def test_two_members_of_a_stream_are_one_limit() -> None:
    """What follows the first gzip member is not read."""
    plain = untrusted.unpack(gzip.compress(b"{}") + gzip.compress(b"x" * 1000), 10)
    assert plain == b"{}"
    with pytest.raises(untrusted.UntrustedError, match="truncated"):
        untrusted.unpack(gzip.compress(b"{}")[:-1], 10)
    with pytest.raises(untrusted.UntrustedError, match="more than"):
        untrusted.unpack(gzip.compress(os.urandom(20)), 10)


def test_many_references_to_one_stack_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes for each thread, and each thread has the whole stack."""
    monkeypatch.setattr(codec, "_ALWAYS", 0)
    one = snapshot(rank(0, train(12)))
    written = json.loads(gzip.decompress(codec.encode(one)))
    written["table"]["stacks"][0] *= 2000
    threads = written["hosts"][0]["processes"][0]["stack"]["threads"]
    threads[0].pop("locals", None)
    threads *= 2000
    with pytest.raises(codec.BundleError, match="frames"):
        codec.decode(gzip.compress(json.dumps(written).encode()))


def test_many_ranks_with_one_environment_are_refused() -> None:
    variables = {f"V{n}": "" for n in range(1000)}
    first = rank(0, train(12), environment={"RANK": "0", **variables})
    one = snapshot(first)
    alike = tuple(
        Alike(pid=1000 + n, like=first.pid, state="S", rank=n, local_rank=n, started_seconds_ago=1.0, cpu_ns=0,
              idle_seconds=None, resident_bytes=None, argv=None, variables={})
        for n in range(2000)
    )  # fmt: skip
    hosts = (msgspec.structs.replace(one.hosts[0], alike=alike),)
    with pytest.raises(ValueError, match="environment variables"):
        shared_ranks.resolve(hosts, 1_000_000)


# --- exchanges that drip -------------------------------------------------------------------------------------------------


@contextmanager
def dripping(head: bytes, family: int = socket.AF_INET, address: object = ("127.0.0.1", 0)) -> Iterator[socket.socket]:
    """A server that sends `head` and then a byte every tenth of a second, for ever."""
    server = socket.socket(family)
    server.bind(address)  # type: ignore[arg-type]
    server.listen()
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(100)
                    client.sendall(head)
                    while not ended.wait(0.1):
                        client.sendall(b"a")
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"]
)
def test_a_webhook_that_drips_meets_the_limit(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.watch.deliver.HOOK_SECONDS", 1.0)
    with dripping(head) as server:
        post = webhook(f"http://127.0.0.1:{server.getsockname()[1]}/x")
        _late(lambda: post(Message(delivery="1", about="a hang", body="{}")), Unreachable)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_a_worker_server_that_drips_meets_the_limit(
    head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from hangdoc.observe.access.deadline import Deadline
    from hangdoc.observe.torch import worker_server
    from hangdoc.procfs import ProcFS

    monkeypatch.setattr(worker_server, "_TIMEOUT_SECONDS", 1.0)
    proc = ProcFS()
    observation = SimpleNamespace(proc=proc, deadline=Deadline(20))
    target = SimpleNamespace(pid=os.getpid(), start_ticks=proc.stat("self").start_ticks)
    path = str(tmp_path / "s")
    with dripping(head, socket.AF_UNIX, path):
        _late(lambda: worker_server.ask(observation, target, path, "dump"), OSError)  # type: ignore[arg-type]


def _late(call: Callable[[], object], error: type[Exception]) -> None:
    began = time.monotonic()
    finished = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as problem:
            raised.append(problem)
        finished.set()

    threading.Thread(target=run, daemon=True).start()
    assert finished.wait(100), "it waits for ever"
    assert time.monotonic() - began > 0.5
    assert isinstance(raised[0], error)
    assert "within 1 s" in str(raised[0]) or "timed out" in str(raised[0])


@pytest.mark.parametrize("window", ["-1e308", "1e308", "-1", "1e400"])
def test_a_window_of_no_possible_length_is_refused(window: str) -> None:
    """Rules divide by it and multiply with it."""
    raw = gzip.decompress(codec.encode(snapshot(rank(0, train(12)))))
    assert codec.decode(gzip.compress(raw)).hosts
    forged = re.sub(rb'"window_seconds":[0-9.]+', b'"window_seconds":' + window.encode(), raw)
    with pytest.raises(codec.BundleError, match=r"window_seconds|number"):
        codec.decode(gzip.compress(forged))
