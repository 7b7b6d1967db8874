"""Whoever listens on the port of NCCL's RAS: it says nothing about the ranks of others and takes a bounded time and memory, and
another user's server is never asked."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu import ras, ras_reading
from hangdoc.observe.gpu.ras import read_ras
from hangdoc.observe.gpu.ras_answer import RasAnswerError, parse_answer
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import RankIdentity, Ras, RasAnswer, Unavailable
from tests.hostile.fuzz.bounds import bounded
from tests.hostile.ranks import PYTHON, program, rank, run_hangdoc
from tests.hostile.users import MALLORY, VICTIM
from tests.live.needs import needs
from tests.unit.ras_answers import Communicator, Member, json_answer, text_answer
from tests.unit.ras_server import SOURCE, Served

PROC = ProcFS()
_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
LIE = "0xbadbadbadbadbad1"


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root", "unshare", "nsenter", "ip")


def serving(served: Served) -> str:
    """The code of a process that serves and waits."""
    return f"{SOURCE}\nserve({served.text()!r})\nwait('/train.py', 1)"


@contextlib.contextmanager
def stranger(beside: int, served: Served, uid: int = MALLORY) -> Iterator[int]:
    """A process of another user in the network namespace of a rank, which serves."""
    command = ["nsenter", f"--net=/proc/{beside}/ns/net", PYTHON, "-I", "-c", program(serving(served), uid)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, start_new_session=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child.pid
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def about(pid: int, mine: int, others: int, hash_: int = 7) -> str:
    """An answer about a process in a communicator of two."""
    away = Member(1, 999_999, (0, 0, 0, 0, others), host="10.0.0.9")
    return json_answer([Communicator(hash_, (Member(0, pid, (0, 0, 0, 0, mine)), away))]).decode()


def lie(pid: int) -> str:
    return about(pid, 1, 4_242_424_242, int(LIE, 16))


def target(pid: int, number: int = 0, **environment: str) -> Target:
    identity = RankIdentity(rank=number, source="environment", world_size=2, run=f"run of {PROC.user(pid)}")
    return Target(pid, 1, "rank", "python", (), "S", PROC.stat(str(pid)).start_ticks, identity, environment=environment)


def read(*targets: Target, seconds: float = 20) -> dict[tuple[int, ...], Ras]:
    observation = Observation(PROC, Deadline(seconds), 0.1, "never", {one.pid: one for one in targets}, ras="always")
    return {one.processes: one for one in read_ras(observation, {})}


# --- a stranger on the port ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("can_attach")
def test_a_stranger_that_lies_changes_no_report(place: Path) -> None:
    """It has the port, because the ranks use no RAS, and says that their run hangs."""
    with rank("wait('/train.py', 1)", uid=VICTIM, world_size=1, before=_NETWORK) as victim:
        before = run_hangdoc("--pid", str(victim), "--ras", "always", folder=place)
        with stranger(victim, Served([lie(victim)])):
            began = time.monotonic()
            seen = run_hangdoc("--pid", str(victim), "--ras", "always", folder=place)
            assert time.monotonic() - began < 100
    assert LIE[2:] not in seen.text
    assert "4242424242" not in seen.text

    def conclusions(document: dict[str, object]) -> str:
        (job,) = document["jobs"]  # type: ignore[misc]
        return json.dumps(
            [job["verdict"], [one["code"] for one in job["findings"]], [r["state"] for r in job["ranks"]]]
        )

    assert conclusions(seen.document) == conclusions(before.document)


@pytest.mark.usefixtures("can_attach")
def test_the_ranks_own_service_is_asked_in_the_same_way(place: Path) -> None:
    """Otherwise the test above could not fail."""
    code = serving(Served([lie(0).replace('"pid": 0', '"pid": @PID@')]))
    with rank(code, uid=VICTIM, world_size=1, before=_NETWORK) as victim:
        seen = run_hangdoc("--pid", str(victim), "--ras", "always", folder=place)
    assert "4242424242" in seen.text


@pytest.mark.parametrize("mode", ["plain", "endless"])
def test_a_stranger_beside_the_ranks_own_service(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one has 127.0.0.1, the other ::1: `localhost` is both."""
    monkeypatch.setattr(ras, "_BETWEEN_SECONDS", 0.0)
    code = serving(Served([about(0, 5, 4).replace('"pid": 0', '"pid": @PID@')]))
    with (
        rank(code, uid=VICTIM, before=_NETWORK) as victim,
        stranger(victim, Served([lie(victim)], address="::1", mode=mode)),
    ):
        answer = read(target(victim))[victim,].answer
    assert isinstance(answer, RasAnswer), answer
    assert [one.hash[-1] for one in answer.communicators] == ["7"]
    assert answer.communicators[0].ranks[0].process == victim


def test_who_accepts_is_asked_nothing_if_it_is_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port changes hands between the search for the listener and the connection. The kernel says who has accepted it."""
    with rank("wait('/train.py', 1)", uid=VICTIM, before=_NETWORK) as victim, stranger(victim, Served([lie(victim)])):
        real = ras_reading.find_listener
        monkeypatch.setattr(
            ras_reading, "find_listener", lambda file, user, wanted: real(file, MALLORY, wanted)._replace(user=VICTIM)
        )
        answer = read(target(victim))[victim,].answer
    assert answer == Unavailable(reason=f"a process of uid {MALLORY} took the connection to port 28028")


def test_a_rank_says_nothing_about_the_ranks_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are ranks in one network namespace, and each has its service."""
    monkeypatch.setattr(ras, "_BETWEEN_SECONDS", 0.0)
    with (
        rank("wait('/train.py', 1)", uid=VICTIM, before=_NETWORK) as victim,
        stranger(victim, Served([about(victim, 1, 9)])) as liar,
    ):
        results = read(target(victim), target(liar, 1))
    assert (victim,) not in results, "nobody of its user listens"
    answer = results[liar,].answer
    assert isinstance(answer, Unavailable) or all(
        one.process is None for communicator in answer.communicators for one in communicator.ranks
    )


def test_many_services_that_do_not_answer_take_a_bounded_time() -> None:
    ports = range(20_000, 20_012)
    served = [Served(["unused"], mode="silent", port=port) for port in ports]
    code = f"{SOURCE}\n" + "\n".join(f"serve({one.text()!r})" for one in served) + "\nwait('/train.py', 1)"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(rank(code, uid=VICTIM, before=_NETWORK))
        enter = ("nsenter", f"--net=/proc/{first}/ns/net")
        rest = [
            stack.enter_context(rank("wait('/train.py', 1)", n, uid=VICTIM, before=enter)) for n in range(1, len(ports))
        ]
        targets = [
            target(pid, number, NCCL_RAS_ADDR=f"localhost:{port}")
            for number, (pid, port) in enumerate(zip((first, *rest), ports, strict=True))
        ]
        began, descriptors = time.monotonic(), len(os.listdir("/proc/self/fd"))
        results = read(*targets, seconds=8)
        assert time.monotonic() - began < 6
        assert len(results) == 8, "of one user"
        assert all(isinstance(one.answer, Unavailable) for one in results.values())
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


# --- answers that are made to cost much ---------------------------------------------------------------------------------------

_SMALL = b'{"hash":"0x0","size":0,"ranks":[],"missing_ranks":[]}'
_MISSING = (
    b'{"rank":1,"host":"","pid":1,"cuda_dev":0,"nvml_dev":0,"status":{"unresponsive":true,"considered_dead":true}}'
)
_FULL = 16 << 20
_ONE_MORE = text_answer([Communicator(1, (Member(0, 1), Member(1, 2, (0, 0, 0, 0, 1))))], (2, 26, 2)).partition(
    b"#0-0"
)[0]
_TABLE = b"    0         1         1         2     60001     60001   RUNNING  MISMATCH\n"
_COMPARISON = (
    b"  Communicator ranks have different %s operation counts\n  %d ranks have not launched any operations\n\n"
)


def _missing(first: int, count: int) -> bytes:
    return b"  The missing ranks: " + b",".join(b"%d" % number for number in range(first, first + count)) + b"\n"


_TITLE = b"NCCL version 2.26.2 compiled with CUDA 12.8\n" + _TABLE + b"\nWarnings\n========\n\n#0-0 (1) MISMATCH\n"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"nccl_version":"2","communicators":[' + b",".join([_SMALL] * (_FULL // len(_SMALL) - 9)) + b"]}",
        b'{"nccl_version":"2","communicators":[{"hash":"0x0","size":0,"ranks":[],"missing_ranks":['
        + b",".join([_MISSING] * (_FULL // len(_MISSING) - 9)) + b"]}]}",
        b'{"nccl_version":"2","communicators":[' + b"{}," * (_FULL // 4) + b"{}]}",
        b'{"x":' + b"[" * (_FULL - 99),
        b'{"nccl_version":"2","x":' + b'"nvml_dev": 1' * (_FULL // 16) + b"}",
        b'{"nccl_version":"' + b"2" * (_FULL - 99) + b'","communicators":[]}',
        b" " * _FULL,
        b"\n" * _FULL,
        _ONE_MORE + b"  Rank 0 -- [process information not found]\n" * 300_000,
        _TITLE + b"  Rank 1 has launched up to operation 1 -- [process information not found]\n" * 200_000,
        # Each comparison concludes the counts of 60,000 ranks that it does not name.
        _TITLE + _COMPARISON % (b"AllReduce", 60_001) * 100_000,
        _TITLE + b"".join(_missing(first, 150) for first in range(0, 60_000, 150)) + _COMPARISON % (b"Reduce", 1) * 150_000,
        _TITLE + b"  The missing ranks: " + b"1," * (8 << 20),
        _TITLE + b"  Rank 1 has launched up to operation " + b"9" * (1 << 20) + b" -- GPU 0",
        b"#1-1 (1) MISMATCH" * (1 << 20),
        b"\xff" * _FULL,
    ],
)  # fmt: skip
def test_an_answer_costs_a_bounded_time_and_memory(raw: bytes) -> None:
    with bounded(), contextlib.suppress(RasAnswerError):
        parse_answer(raw[:_FULL])
