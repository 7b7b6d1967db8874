"""Ranks that wait for requests: idle, in the middle of a request that others have left, or cut off from who sends them."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import AwaitedFile, Clocks, Connection, Connections, Frame, Holder, Loop, Process
from tests.unit.builders import c10d, frame, local, rank, silent, snapshot

TASKS = frame("Worker.main_loop", 1069, "/site-packages/ray/_private/worker.py")
POLLS = {"syscall": "epoll_wait"}


@pytest.mark.parametrize("patience", [0.0, 30.0])
def test_ranks_without_work_are_idle_whatever_the_patience(patience: float) -> None:
    (job,) = diagnose(snapshot(rank(0, TASKS, kernel=POLLS), rank(1, TASKS, kernel=POLLS)), patience=patience).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.code, finding.severity) == ("waiting", "HD602", "info")
    assert finding.summary == "idle: ranks 0-1 are waiting for requests from the Ray driver"


@pytest.mark.parametrize("operation", ["broadcast", "scatter_object_list"])
def test_who_waits_to_be_told_what_to_do_is_idle_too(operation: str) -> None:
    others = [rank(number, *c10d(operation), frame("serve", 9), world=3) for number in (1, 2)]
    (job,) = diagnose(snapshot(rank(0, TASKS, world=3, kernel=POLLS), *others)).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("waiting", "HD602", (0,))
    assert job.findings[0].summary.startswith("idle: rank 0 is waiting for requests from the Ray driver; ranks 1-2 are")


def test_who_has_left_a_request_in_which_others_wait_is_to_blame() -> None:
    """It caught an error, for example, and went back to wait."""
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("update", 9)), rank(1, TASKS, kernel=POLLS))).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD202", (1,))
    assert "which is waiting for requests from the Ray driver" in finding.summary
    assert "caught the error" in (finding.remedy or "")


def test_a_driver_that_is_stopped_is_named_once_the_wait_is_old() -> None:
    """That it is connected with the ranks is no proof that they wait for it."""
    driver = Holder(pid=7, name="python", state="T")
    ranks = [rank(number, TASKS, kernel=POLLS, others_stopped=(driver,)) for number in range(2)]
    (young,) = diagnose(snapshot(*ranks, silence=5.0)).jobs
    (old,) = diagnose(snapshot(*ranks)).jobs
    assert (young.verdict, old.verdict) == ("waiting", "hung")
    finding = old.findings[0]
    assert (finding.code, finding.culprits, finding.commands) == ("HD302", (), ("kill -CONT 7",))
    assert finding.summary == "pid 7 (python), with which ranks 0-1 are connected, is stopped by a signal (state T)"


@pytest.mark.parametrize(("port", "verdict"), [(8000, "waiting"), (29500, "hung")], ids=["requests", "the run's store"])
def test_a_parent_with_the_store_of_the_run_gives_no_requests(port: int, verdict: str) -> None:
    polls = frame("take_request", 12, source="time.sleep(0.02)")
    sleeps = {
        "syscall": "clock_nanosleep",
        "voluntary_switches": 50,
        "sleep_seconds": 0.01,
        "whole_sleep_seconds": 0.02,
    }
    first = rank(0, polls, cpu=0.01)
    assert first.clocks.threads
    thread = replace(first.clocks.threads[0], **sleeps)
    first = replace(first, clocks=replace(first.clocks, threads=(thread, *first.clocks.threads[1:])))
    parent = rank(0, frame("main", 9), pid=50, role="launcher", identity=None, owner=None, name="api_server")
    listens = Connection(
        pid=50, namespace="net:[1]", state="LISTEN", local_address="10.0.0.1", local_port=port, remote_address="::",
        remote_port=0, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=None, last_sent_ms=None,
        last_received_ms=None,
    )  # fmt: skip
    connections = Connections(connections=(*silent(2, 60.0).connections, listens))
    others = rank(1, *c10d("broadcast"), frame("serve", 9))
    (job,) = diagnose(snapshot(parent, first, others, connections=connections)).jobs
    assert job.verdict == verdict


@pytest.mark.parametrize(
    ("operation", "writer", "verdict"),
    [
        ("scatter_object_list", {"waits_for_events": True}, "waiting"),
        ("scatter_object_list", {"waits_for_events": False}, "hung"),  # it may be stuck
        ("scatter_object_list", {"waits_for_events": True, "pid": 1}, "hung"),  # the parent of the rank
        ("all_reduce", {"waits_for_events": True}, "hung"),
    ],
)
def test_who_reads_from_a_pipe_whose_writer_waits_for_the_outside_is_idle(
    operation: str, writer: dict[str, Any], verdict: str
) -> None:
    """`tail -F chat.log > chat.fifo`: rank 0 hands out what comes."""
    holder = Holder(**{"pid": 9, "name": "tail", "state": "S"} | writer)
    fifo = AwaitedFile(kind="pipe", name="/srv/chat.fifo", descriptor=23, holders=(holder,))
    reads = rank(0, frame("groups", 50), kernel={"syscall": "read", "files": (fifo,)}, world=3, ppid=1)
    others = [rank(number, *c10d(operation), frame("assist", 86), world=3) for number in (1, 2)]
    (job,) = diagnose(snapshot(reads, *others, silence=600.0)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert job.findings[0].code == "HD602"
        assert "idle: rank 0 is waiting for requests from pid 9 (tail); ranks 1-2" in job.findings[0].summary


VLLM_WORKER = frame("WorkerProc.worker_busy_loop", 1040, "/site-packages/vllm/v1/executor/multiproc_executor.py")
TORCHRUN = frame("<module>", 30)


@pytest.mark.parametrize(("caller", "batches"), [(VLLM_WORKER, None), (TASKS, None), (TORCHRUN, 3)])
def test_the_rounds_inside_a_request_are_no_batches(caller: Frame, batches: int | None) -> None:
    layers = Loop(line=10, end_line=20, header="for layer in range(8)", counters=("layer",), start=0, bound="8")
    model = frame("execute_model", 12, "/home/me/model.py", loops=(layers,), locals=(local("layer", 3),))
    (job,) = diagnose(snapshot(*(rank(number, *c10d("all_reduce"), model, caller) for number in range(2)))).jobs
    assert {view.batches_done for view in job.ranks} == {batches}


@pytest.mark.parametrize(
    ("front", "verdict"),
    [
        ((Holder(pid=9, name="frontend", state="S", waits_for_events=True),), "waiting"),
        ((Holder(pid=9, name="frontend", state="S"),), "hung"),  # it may be stuck
        ((), "hung"),
    ],
)
def test_who_polls_memory_that_a_front_end_shares_is_idle(front: tuple[Holder, ...], verdict: str) -> None:
    ranks = [polls_memory(rank(number, frame("wait_for", 30), others_in_memory=front)) for number in range(2)]
    (job,) = diagnose(snapshot(*ranks, silence=600.0)).jobs
    assert job.verdict == verdict
    if front and verdict == "waiting":
        assert job.findings[0].summary == "idle: ranks 0-1 are waiting for requests from pid 9 (frontend)"


def polls_memory(process: Process) -> Process:
    """A rank that sleeps for 20 ms again and again."""
    assert isinstance(process.clocks, Clocks)
    main, *others = process.clocks.threads
    main = replace(main, syscall="clock_nanosleep", voluntary_switches=50, sleep_seconds=0.01, whole_sleep_seconds=0.02)
    return replace(process, clocks=replace(process.clocks, threads=(main, *others)))
