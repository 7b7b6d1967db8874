"""When NCCL's RAS is asked, and what a look and polls make of its answers: real processes in a network namespace of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu import ras, ras_client, ras_reading, ras_service
from hangdoc.observe.gpu.nccl_library import NcclLibrary
from hangdoc.observe.gpu.ras import PolledRas, read_ras
from hangdoc.observe.gpu.ras_client import RasListener
from hangdoc.observe.gpu.ras_consent import find_objection, is_needed
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import (
    FlightRecorder,
    Frame,
    RankIdentity,
    Ras,
    RasAnswer,
    Recorded,
    RecordedGroup,
    Stack,
    Unavailable,
)
from tests.hostile.ranks import rank
from tests.live.needs import needs
from tests.unit.builders import c10d, frame, stack
from tests.unit.ras_answers import Communicator, Member, json_answer, text_answer
from tests.unit.ras_server import SOURCE, Served, running

PROC = ProcFS()
PORT = 28028
"""NCCL's own: nobody else has it in a namespace that was just made."""
_IN_NEW_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root", "unshare", "nsenter", "ip")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_BETWEEN_SECONDS", 0.0)


def target(pid: int, number: int = 0, world_size: int | None = None, **environment: str) -> Target:
    identity = RankIdentity(rank=number, source="environment", world_size=world_size, run="run")
    ticks = PROC.stat(str(pid)).start_ticks
    return Target(pid, 1, "rank", "python", ("python",), "S", ticks, identity, environment=environment)


def look(*targets: Target, mode: str = "always", seconds: float = 30, **more: Any) -> Observation:
    by_pid = {one.pid: one for one in targets}
    return Observation(PROC, Deadline(seconds), 0.1, "never", by_pid, ras=mode, **more)


def only(results: tuple[Ras, ...]) -> Ras:
    (result,) = results
    return result


def answer_of(results: tuple[Ras, ...]) -> RasAnswer:
    answer = only(results).answer
    assert isinstance(answer, RasAnswer), answer
    return answer


def refusal(results: tuple[Ras, ...]) -> str:
    answer = only(results).answer
    assert isinstance(answer, Unavailable), answer
    return answer.reason


def job(*counts: int, pids: tuple[int, ...] = (999_999,), hash_: int = 7) -> Communicator:
    """Rank 0 is the process that serves; the others are elsewhere."""
    others = zip(range(1, len(counts)), pids, counts[1:], strict=True)
    away = (Member(rank, pid, (0, 0, 0, 0, count), host="10.0.0.9") for rank, pid, count in others)
    return Communicator(hash_, (Member(0, 123_123, (0, 0, 0, 0, counts[0])), *away))


def written(*communicators: Communicator) -> str:
    return json_answer(communicators).decode().replace("123123", "@PID@")


@contextlib.contextmanager
def rank_that_serves(*answers: str, beside: int | None = None, **more: Any) -> Iterator[int]:
    """The pid of a process that serves RAS in a network namespace of its own, or in that of another process."""
    before = _IN_NEW_NETWORK if beside is None else ("nsenter", f"--net=/proc/{beside}/ns/net")
    with running(Served(list(answers), port=PORT, **more), *before) as child:
        yield child.pid


# --- a look --------------------------------------------------------------------------------------------------------------


def test_a_look_through_the_network_namespace() -> None:
    with rank_that_serves(written(job(5, 4)), written(job(6, 4))) as pid:
        assert PROC.link(f"{pid}/ns/net") != PROC.link("self/ns/net")
        result = only(read_ras(look(target(pid)), {}))
        answer = answer_of((result,))
        assert (result.namespace, result.address, result.processes) == (
            PROC.link(f"{pid}/ns/net"),
            "localhost:28028",
            (pid,),
        )
    (communicator,) = answer.communicators
    mine, other = communicator.ranks
    assert (mine.process, mine.counts[4], mine.counts_before[4]) == (pid, 6, 5)
    assert (other.process, other.host, other.pid, other.counts, other.counts_before) == (
        None, "10.0.0.9", 999_999, (0, 0, 0, 0, 4), (0, 0, 0, 0, 4),
    )  # fmt: skip
    assert answer.seconds_between is not None


def test_one_reading_is_enough_if_all_agree_and_are_recorded() -> None:
    with rank_that_serves(written(job(5, 5)), written(job(6, 6))) as pid:
        answer = answer_of(read_ras(look(target(pid)), {pid: {"recorder": RECORD}}))
    assert answer.seconds_between is None
    assert answer.communicators[0].ranks[0].counts[4] == 5


def test_a_second_reading_that_fails() -> None:
    with rank_that_serves(written(job(5, 4)), "nonsense") as pid:
        answer = answer_of(read_ras(look(target(pid)), {}))
    assert answer.seconds_between is None
    assert answer.problems == ("it was read once, because the second time its answer is not one of NCCL's RAS",)


def test_pids_of_a_container() -> None:
    """In its own pid namespace the process has another pid, and RAS knows only that one."""
    program = f"{SOURCE}\nserve({Served([written(job(5, 4))], port=PORT).text()!r})\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        *_IN_NEW_NETWORK[2:],
        sys.executable,
        "-I",
        "-c",
        program,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            (pid,) = map(int, PROC.text(f"{child.pid}/task/{child.pid}/children").split())
            (communicator,) = answer_of(read_ras(look(target(pid)), {})).communicators
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert (communicator.ranks[0].pid, communicator.ranks[0].process) == (1, pid)


def test_an_answer_before_json() -> None:
    text = text_answer([job(5, 4)], (2, 24, 3)).decode().replace("123123", "@PID@")
    with rank_that_serves("unused", texts=[text], knows_json=False) as pid:
        answer = answer_of(read_ras(look(target(pid)), {}))
    assert answer.form == "text"
    assert [(rank.process, rank.launched) for rank in answer.communicators[0].ranks] == [(pid, 5), (None, 4)]


def test_another_job_of_the_user_answers() -> None:
    """Its sockets listen on the same port, and the kernel chooses."""
    other = json_answer([Communicator(9, (Member(0, 4_000_000, (1, 0, 0, 0, 0)), Member(1, 4_000_001)))]).decode()
    with rank_that_serves(other) as pid:
        started = subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", "sleep", "infinity"])
        try:
            while PROC.stat(str(started.pid)).name != "sleep":
                time.sleep(0.01)
            assert refusal(read_ras(look(target(started.pid)), {})) == "RAS answered only about other jobs of the user"
        finally:
            started.kill()
            started.wait()


def test_a_stopped_process_among_those_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection reaches one of the two by chance: of two, the first reaches the stopped one in half of the looks."""
    monkeypatch.setattr(ras_client, "_HELLO_SECONDS", 0.3)
    connections: list[RasListener] = []

    def counted(listener: RasListener, seconds: float) -> bytes:
        connections.append(listener)
        return ras_client.ask(listener, seconds)

    monkeypatch.setattr(ras_reading, "ask", counted)
    with rank_that_serves(written(job(5, 5))) as pid, rank_that_serves("unused", beside=pid) as stopped:
        os.kill(stopped, signal.SIGSTOP)
        evidence = {one: {"recorder": RECORD} for one in (pid, stopped)}  # then one reading is enough
        for _ in range(30):
            connections.clear()
            answer = only(read_ras(look(target(pid), target(stopped, 1)), evidence)).answer
            if isinstance(answer, RasAnswer) and len(connections) > 1:
                return
            assert isinstance(answer, RasAnswer) or (len(connections) == 4 and "does not answer" in answer.reason)
    raise AssertionError("in 30 looks, no second connection got an answer")


def test_the_time_of_a_look_is_kept() -> None:
    with rank_that_serves("unused", mode="silent") as pid:
        began = time.monotonic()
        assert "does not answer" in refusal(read_ras(look(target(pid), seconds=3), {}))
        assert time.monotonic() - began < 3
        assert refusal(read_ras(look(target(pid), seconds=1), {})) == "no time was left"


def test_uniform_communicators_of_others_are_left_out() -> None:
    elsewhere = [
        Communicator(
            20 + number,
            (Member(0, 1, (0, 0, 0, 0, 3), host="10.0.0.9"), Member(1, 2, (0, 0, 0, 0, last), host="10.0.0.9")),
        )
        for number, last in enumerate((3, 4))
    ]
    with rank_that_serves(written(job(5, 5), *elsewhere)) as pid:
        answer = answer_of(read_ras(look(target(pid)), {}))
    assert [communicator.hash[-2:] for communicator in answer.communicators] == ["07", "15"]
    assert answer.left_out == 1


# --- when it is asked ------------------------------------------------------------------------------------------------------

RECORD = FlightRecorder(source="memory", age_seconds=0, groups=(RecordedGroup(name="0", default=True, issued=3),))
SAFE, UNSAFE = (2, 29, 7), (2, 28, 9)


def library(version: tuple[int, int, int] | None, name: str = "nccl") -> NcclLibrary:
    return NcclLibrary(name, "/env/libnccl.so.2", 0, "x86_64", version, None, "", 0, {}, "")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[NcclLibrary]], None]:
    """Says which libraries a process has loaded."""
    libraries: dict[int, list[NcclLibrary]] = {}
    monkeypatch.setattr(ras, "find_nccl", lambda proc, pid, ticks: libraries.get(pid, []))

    def set_(pid: int, found: list[NcclLibrary]) -> None:
        libraries[pid] = found

    return set_


def test_auto_asks_only_safe_versions(mapped: Callable[[int, list[NcclLibrary]], None]) -> None:
    with rank_that_serves(written(job(5, 4))) as pid:
        in_user_code = {pid: {"stack": stack(frame("train", 15))}}
        assert read_ras(look(target(pid), mode="auto"), in_user_code) == (), "it has no NCCL"
        assert read_ras(look(target(pid), mode="never"), in_user_code) == ()
        mapped(pid, [library(SAFE)])
        assert answer_of(read_ras(look(target(pid), mode="auto"), in_user_code)).communicators
        mapped(pid, [library(UNSAFE)])
        why = refusal(read_ras(look(target(pid), mode="auto"), in_user_code))
        assert why == "not asked: NCCL 2.28.9 can be damaged by a query; --ras always takes the risk"
        assert answer_of(read_ras(look(target(pid)), in_user_code)).communicators, "always takes the risk"


def test_auto_does_not_ask_a_process_that_was_not_observed(mapped: Callable[[int, list[NcclLibrary]], None]) -> None:
    with rank_that_serves(written(job(5, 4))) as pid, rank_that_serves(written(job(5, 4)), beside=pid) as other:
        mapped(pid, [library(SAFE)])
        mapped(other, [library(SAFE)])
        evidence = {one: {"stack": stack(frame("train", 15))} for one in (pid, other)}
        assert "a process that was not observed" in refusal(read_ras(look(target(pid), mode="auto"), evidence))
        assert answer_of(read_ras(look(target(pid), target(other, 1), mode="auto"), evidence)).communicators


def test_auto_does_not_ask_where_torch_has_recorded_all(mapped: Callable[[int, list[NcclLibrary]], None]) -> None:
    with rank_that_serves(written(job(5, 4))) as pid:
        mapped(pid, [library(SAFE)])
        evidence = {pid: {"stack": stack(frame("train", 15)), "recorder": RECORD}}
        assert read_ras(look(target(pid, world_size=1), mode="auto"), evidence) == ()
        assert answer_of(read_ras(look(target(pid, world_size=2), mode="auto"), evidence)).communicators
        assert read_ras(look(target(pid, world_size=2), mode="auto", of_fleet=True), evidence) == ()


def in_memory(*states: int, unread: int = 0) -> SimpleNamespace:
    """The communicators that the probe of NCCL's memory finds."""
    return SimpleNamespace(communicators=tuple(SimpleNamespace(init_state=state) for state in states), unread=unread)


def test_what_is_recorded() -> None:
    ranks = [
        Target(number, 1, "rank", "p", (), "S", 0, RankIdentity(rank=number, source="e", world_size=2))
        for number in (0, 1)
    ]
    both = {number: {"recorder": RECORD} for number in (0, 1)}
    assert not is_needed(ranks, both, whole=True)
    assert is_needed(ranks[:1], both, whole=True)
    assert not is_needed(ranks[:1], both, whole=False)
    for none in (Unavailable(reason="no record"), FlightRecorder(source="memory", age_seconds=0, groups=())):
        assert is_needed(ranks, both | {1: {"recorder": none}}, whole=False)
    assert not is_needed(ranks, both | {1: {"communicators": in_memory(0)}}, whole=False)
    assert is_needed(ranks, both | {1: {"communicators": in_memory()}}, whole=False)
    unknown = Target(0, 1, "rank", "p", (), "S", 0, RankIdentity(rank=0, source="e"))
    assert is_needed([unknown], both, whole=True)


def native(*functions: str) -> Stack:
    return stack(*(frame(name, 0, "libnccl.so.2", native=True) for name in functions), frame("train", 15))


def pending(line: int) -> FlightRecorder:
    frames = (*c10d("all_reduce"), Frame(function="train", file="/home/me/train.py", line=line))
    group = RecordedGroup(name="0", default=True, pending=(Recorded(seq=4, op="nccl:all_reduce", frames=frames),))
    return FlightRecorder(source="memory", age_seconds=0, groups=(group,))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"stack": stack(frame("train", 15))}, None),
        ({"stack": Unavailable(reason="permission denied")}, "its stack could not be read"),
        ({}, "its stack could not be read"),
        ({"stack": stack(*c10d("init_process_group"), frame("main", 3))}, "makes a communicator"),
        ({"stack": stack(*c10d("new_group"), frame("main", 3)), "recorder": pending(3)}, "makes a communicator"),
        ({"stack": stack(frame("ncclCommInitRank", 300, "/env/vllm/pynccl_wrapper.py"))}, "makes a communicator"),
        ({"stack": stack(*c10d("all_reduce"), frame("train", 15))}, "may be making a communicator in its call"),
        ({"stack": stack(*c10d("all_reduce"), frame("train", 15)), "recorder": RECORD}, "may be making a communicator"),
        ({"stack": stack(*c10d("all_reduce"), frame("train", 15)), "recorder": pending(14)}, "may be making a communicator"),
        ({"stack": stack(*c10d("all_reduce"), frame("train", 15)), "recorder": pending(15)}, None),
        ({"stack": stack(*c10d("all_reduce"), frame("train", 15)), "native": native("cudaStreamSynchronize")}, None),
        ({"stack": stack(frame("train", 15)), "communicators": in_memory(0, 0)}, None),
        ({"stack": stack(frame("train", 15)), "communicators": in_memory(0, 7)}, "makes a communicator"),
        ({"stack": stack(frame("train", 15)), "communicators": in_memory(0, unread=1)}, "makes a communicator"),
        ({"stack": stack(*c10d("all_reduce")), "native": native("bootstrapInit", "ncclCommInitRankConfig")}, "makes a comm"),
    ],
)  # fmt: skip
def test_what_a_rank_is_in(fields: dict[str, Any], why: str | None) -> None:
    found = find_objection([Target(7, 1, "rank", "p", (), "S", 0)], {7: fields}, {7: [library(SAFE)]})
    assert found is None if why is None else why in (found or "")


@pytest.mark.parametrize(
    ("libraries", "why"),
    [
        ([library((2, 29, 2))], None),
        ([], None),
        ([library((2, 29, 1))], "NCCL 2.29.1 can be damaged"),
        ([library((2, 30, 4)), library((2, 26, 2))], "NCCL 2.26.2 can be damaged"),
        ([library(None)], "the version of the NCCL of pid 7 is not known"),
        ([library((2, 29, 7), "rccl")], "the version of the RCCL of pid 7 is not known"),
        (Unavailable(reason="permission denied"), "the NCCL of pid 7 is not known (permission denied)"),
    ],
)
def test_versions(libraries: list[NcclLibrary] | Unavailable, why: str | None) -> None:
    fields = {7: {"stack": stack(frame("train", 15))}}
    found = find_objection([Target(7, 1, "rank", "p", (), "S", 0)], fields, {7: libraries})
    assert found is None if why is None else why in (found or "")


def test_ranks_that_name_another_address_and_too_many() -> None:
    with rank_that_serves(written(job(5, 4))) as pid:
        assert read_ras(look(target(pid, NCCL_RAS_ADDR="localhost:28029")), {}) == (), (
            "nothing is there, and it has no NCCL"
        )
        assert answer_of(read_ras(look(target(pid, NCCL_RAS_ADDR=f"127.0.0.1:{PORT}")), {})).communicators
    own = [target(os.getpid(), NCCL_RAS_ADDR=f"localhost:{port}") for port in range(20_000, 20_020)]
    observation = look()
    observation.targets = dict(enumerate(own))
    assert len(ras_service.find_services(observation)) == 8
    assert observation.problems == [f"NCCL's RAS is read at 8 of the 20 addresses of uid {os.getuid()}"]


# --- polls ----------------------------------------------------------------------------------------------------------------


def polled(polls: PolledRas, observation: Observation, until: Callable[[RasAnswer], bool]) -> RasAnswer:
    """Poll until an answer is there. No poll waits for it."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        began = time.monotonic()
        results = polls.poll(observation, dict)
        assert time.monotonic() - began < 0.5
        if isinstance(answer := only(results).answer, RasAnswer) and until(answer):
            return answer
        time.sleep(0.01)
    raise AssertionError(results)


def test_polls_do_not_wait_and_compare_with_the_answer_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = ras._read_service
    monkeypatch.setattr(ras, "_read_service", lambda *arguments: asked.append(1) or real(*arguments))
    with rank_that_serves(written(job(5, 4)), written(job(6, 4)), mode="slow") as pid:
        polls, observation = PolledRas(), look(target(pid))
        first = polled(polls, observation, lambda answer: True)
        assert (first.seconds_between, first.communicators[0].ranks[0].counts[4], len(asked)) == (None, 5, 1)
        monkeypatch.setattr(ras, "_POLL_SECONDS", 0.0)
        second = polled(polls, observation, lambda answer: answer.seconds_between is not None)
        assert (second.communicators[0].ranks[0].counts[4], second.communicators[0].ranks[0].counts_before[4]) == (6, 5)
        monkeypatch.setattr(ras, "_POLL_SECONDS", 30.0)
        many = len(asked)
        assert polled(polls, observation, lambda answer: answer.age_seconds > 0).age_seconds < 10
        assert len(asked) == many
    observation.targets[pid].state = "Z"
    assert polls.poll(observation, dict) == ()


def test_a_service_that_does_not_answer_holds_up_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "_HELLO_SECONDS", 0.2)
    with rank_that_serves("unused", mode="silent") as pid:
        polls, observation = PolledRas(), look(target(pid))
        began = time.monotonic()
        while "does not answer" not in (reason := refusal(polls.poll(observation, dict))):
            assert reason == "not asked yet"
            assert time.monotonic() - began < 10
            time.sleep(0.01)


def test_polling_has_the_answers_of_its_polls() -> None:
    """The whole way, through discovery and redaction."""
    code = f"{SOURCE}\nserve({Served([written(job(5, 4, hash_=0xE76FC0DC89E2E10B))], port=PORT).text()!r})\nwait('/train.py', 1)"
    with rank(code, world_size=1, before=_IN_NEW_NETWORK) as pid:
        polling = Polling(Options(window=0.1, native="never", ras="always", pids=(pid,)))
        try:
            end = time.monotonic() + 20
            while not isinstance((result := only(polling.look().hosts[0].ras)).answer, RasAnswer):
                assert time.monotonic() < end, result
        finally:
            polling.close()
    assert isinstance(result.answer, RasAnswer)
    (communicator,) = result.answer.communicators
    assert (result.address, result.processes, communicator.hash) == ("localhost:28028", (pid,), "e76fc0dc89e2e10b")
    assert [(one.process, one.host, one.counts[4]) for one in communicator.ranks] == [
        (pid, "127.0.0.1", 5), (None, "10.0.0.9", 4),
    ]  # fmt: skip
