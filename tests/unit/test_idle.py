"""Ranks that wait for requests: idle, in the middle of a request that others have left, or cut off from who sends them."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import (
    AwaitedFile,
    Clocks,
    Connection,
    Connections,
    Frame,
    Holder,
    KernelThread,
    Loop,
    Process,
    PythonThread,
    RayTask,
    Receiver,
    Stack,
    Unavailable,
)
from tests.unit.builders import TORCH, c10d, frame, helper, local, rank, silent, snapshot

TASKS = frame("Worker.main_loop", 1069, "/site-packages/ray/_private/worker.py")
POLLS = {"syscall": "epoll_wait"}
RPC = TORCH + "distributed/rpc/api.py"


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
    assert (finding.remedy or "").startswith(
        "Rank 1 has no request: it left the last one, or was not sent the next one."
    )


def test_a_driver_may_have_sent_a_request_to_some_ranks_only() -> None:
    """The remedy names the request of the others."""
    others = rank(0, *c10d("all_reduce"), frame("Trainer.train_step", 9), TASKS)
    (job,) = diagnose(snapshot(others, rank(1, TASKS, kernel={"syscall": "futex"}))).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD202", (1,))
    assert "it left the last one, or was not sent `Trainer.train_step`, in which rank 0 is." in (finding.remedy or "")


@pytest.mark.parametrize("hands_out", [True, False])
def test_a_rank_that_died_while_the_others_were_idle_keeps_none_of_them_waiting(hands_out: bool) -> None:
    """Who waits for the source of a broadcast does not wait for the dead rank; in a reduction it does. When an idle server lost a
    rank is not known."""
    dead = rank(2, world=3, state="Z", exit_code=9)
    waits = rank(1, *c10d("broadcast" if hands_out else "all_reduce"), frame("serve", 9), world=3)
    (job,) = diagnose(snapshot(rank(0, TASKS, world=3, kernel=POLLS), waits, dead)).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD301", (2,))
    idle = "the others are idle: rank 1 is waiting for rank 0 in broadcast; rank 0 is waiting for requests"
    assert (idle in finding.summary) is hands_out
    assert (job.hung_for_seconds is None) is hands_out


def test_who_waits_for_requests_beside_a_dead_rank_is_not_idle() -> None:
    """Its next request is not answered: "idle", and "to do: nothing", stood below the dead rank."""
    living = rank(0, TASKS, kernel=POLLS)
    assert [each.code for each in diagnose(snapshot(living, rank(1, TASKS, kernel=POLLS))).jobs[0].findings] == [
        "HD602"
    ]
    (job,) = diagnose(snapshot(living, rank(1, state="Z", exit_code=9))).jobs
    assert [each.code for each in job.findings] == ["HD301"]


def test_a_driver_that_is_stopped_is_named_once_the_wait_is_old() -> None:
    """That it is connected with the ranks is no proof that they wait for it."""
    driver = Holder(pid=7, name="python", state="T")
    ranks = [rank(number, TASKS, kernel=POLLS, others_stopped=(driver,)) for number in range(2)]
    (young,) = diagnose(snapshot(*ranks, silence=5.0)).jobs
    (old,) = diagnose(snapshot(*ranks)).jobs
    assert (young.verdict, old.verdict) == ("waiting", "hung")
    assert old.hung_for_seconds is None  # before it was stopped, the ranks may have been idle for hours
    finding = old.findings[0]
    assert (finding.code, finding.culprits, finding.commands) == ("HD302", (), ("kill -CONT 7",))
    assert finding.summary == "pid 7 (python), with which ranks 0-1 are connected, is stopped by a signal (state T)"


@pytest.mark.parametrize(("port", "gives"), [(8000, True), (29500, False)], ids=["requests", "the run's store"])
def test_a_parent_with_the_store_of_the_run_gives_no_requests(port: int, gives: bool) -> None:
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
    assert ("waiting for requests from pid 50 (api_server)" in job.findings[0].summary) is gives


@pytest.mark.parametrize(
    ("operation", "writer", "verdict"),
    [
        ("scatter_object_list", {"waits_for_events": True}, "waiting"),
        ("scatter_object_list", {"waits_for_events": False}, "hung"),  # it may be stuck
        ("scatter_object_list", {"waits_for_events": True, "pid": 1}, "hung"),  # the parent of the rank
        ("scatter_object_list", {"waits_for_events": True, "pid": 1, "accepts": True}, "waiting"),
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
        assert f"idle: rank 0 is waiting for requests from pid {holder.pid} (tail); ranks" in job.findings[0].summary


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
        ((), "waiting"),  # nothing shows for what
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


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (c10d("broadcast", local("src", 0)), "waiting"),
        (c10d("recv", local("src", 0)), "waiting"),
        (c10d("broadcast", local("src", 1)), "hung"),  # the one that polls is to come to it
        ((frame("wait_for_lead", 7, source="store.wait([key])"),), "waiting"),
        (c10d("barrier"), "hung"),
    ],
    ids=["broadcast", "recv", "broadcast by another rank", "key of the store", "barrier"],
)
def test_who_polls_while_the_others_wait_for_what_it_hands_out_may_be_idle(
    call: tuple[Frame, ...], verdict: str
) -> None:
    """A spool directory, a lease. Nothing shows whether somebody makes what it polls for."""
    polls = polls_memory(rank(0, frame("lead", 59, source="time.sleep(0.02)")))
    (job,) = diagnose(snapshot(polls, rank(1, *call, frame("help", 80)), silence=600.0), patience=1.0).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        (finding,) = job.findings
        assert (finding.code, finding.severity, finding.confidence) == ("HD602", "info", 0.6)
        assert finding.summary.startswith("idle, or waiting for what never comes: rank 0 is polling")
        assert finding.remedy is not None
        assert finding.remedy.startswith(
            "Nothing, if what is missing is a request, or if the next attempt may succeed. "
        )
        assert finding.remedy.endswith("the loop at its line shows what must come.")


def asks(number: int, *server: Holder, pid: int = 77) -> Process:
    """A rank that waits for a message at a socket."""
    socket = AwaitedFile(kind="socket", name="socket:[9]", descriptor=3, inode=9, holders=server)
    return rank(number, frame("pop", 27), kernel={"syscall": "recvfrom", "files": (socket,)}, owner=pid, ppid=pid)


@pytest.mark.parametrize(("events", "verdict"), [(True, "waiting"), (False, "hung")])
def test_ranks_that_all_wait_for_a_queue_may_be_idle(events: bool, verdict: str) -> None:
    """A blocking pop: the server waits for connections and requests itself. One that is stuck does not."""
    queue = Holder(pid=6, name="python", state="S", waits_for_events=events)
    (job,) = diagnose(snapshot(*(asks(number, queue) for number in range(2)), silence=600.0)).jobs
    assert job.verdict == verdict
    told = rank(1, *c10d("scatter_object_list"), frame("main", 9))
    (job,) = diagnose(snapshot(asks(0, queue), told, silence=600.0)).jobs
    assert job.verdict == verdict
    in_call = rank(2, *c10d("all_reduce"), frame("main", 9), world=3)
    (job,) = diagnose(snapshot(asks(0, queue), asks(1, queue), in_call, silence=600.0)).jobs
    assert job.verdict == "hung"  # a request is under way


def test_a_server_that_keeps_all_ranks_waiting_is_to_blame_and_no_rank() -> None:
    """Where others wait for a rank that waits for a server, that rank is the one to look at."""
    server = Holder(pid=6, name="python", state="S")
    (job,) = diagnose(snapshot(*(asks(number, server) for number in range(2)), silence=600.0)).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.culprits, finding.victims) == ("hung", (), (0, 1))
    assert finding.summary.startswith("ranks 0-1 are waiting for a reply from pid 6 (python)")
    in_call = rank(1, *c10d("all_reduce"), frame("main", 9))
    (job,) = diagnose(snapshot(asks(0, server), in_call, silence=600.0)).jobs
    assert (job.verdict, job.findings[0].culprits, job.findings[0].victims) == ("hung", (0,), (1,))
    crosswise = [asks(number, Holder(pid=101 - number, name="python", state="S")) for number in range(2)]
    (job,) = diagnose(snapshot(*crosswise, silence=600.0)).jobs
    assert (job.verdict, job.findings[0].culprits) == ("hung", (0, 1))


def test_ranks_that_each_wait_for_a_child_of_their_own_are_to_blame() -> None:
    """And none of them waits for the child of another one."""
    ranks = [asks(number, Holder(pid=700 + number, name="actor", state="S")) for number in range(2)]
    actors = [helper(700 + number, 100 + number, frame("act", 8), name="actor") for number in range(2)]
    (job,) = diagnose(snapshot(*ranks, *actors, silence=600.0)).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.culprits, finding.victims) == ("hung", (0, 1), ())
    assert finding.summary.startswith("ranks 0-1 are blocked in the same way, rank 0 waiting for a reply from pid 700")
    assert "(likewise rank 1)" in finding.evidence[0].text
    assert finding.remedy.startswith("Look at the lines where ranks 0-1 and the child processes are.")


def test_who_waits_for_a_message_of_the_server_that_started_it_is_idle() -> None:
    """Its pipe leads to the engine, and to nobody else."""
    requests = AwaitedFile(kind="socket", name="socket:[5]", descriptor=4, inode=5, listens=True)
    serves = rank(
        0, frame("serve", 9), pid=77, role="launcher", identity=None, owner=None, name="engine",
        kernel={"syscall": "accept4", "files": (requests,)},
    )  # fmt: skip
    pipe = Holder(pid=77, name="engine", state="S")
    (job,) = diagnose(snapshot(serves, *(asks(number, pipe) for number in range(2)), silence=600.0)).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD602")
    assert job.findings[0].summary == "idle: ranks 0-1 are waiting for requests from pid 77 (engine)"


@pytest.mark.parametrize(
    ("unsent", "call", "verdict"),
    [(0, "broadcast", "waiting"), (0, "all_reduce", "hung"), (2_000_000, "broadcast", "hung")],
    ids=["idle", "in a request", "the client does not read"],
)
def test_a_server_that_keeps_a_connection_waits_for_the_next_request(unsent: int, call: str, verdict: str) -> None:
    """HTTP/1.1: one thread serves a client until it closes the connection."""
    client = Holder(pid=9, name="shop", state="S")
    kept = AwaitedFile(kind="socket", name="socket:[9]", descriptor=5, inode=9, holders=(client,))
    blocked = "sendto" if unsent else "recvfrom"
    serves = rank(0, frame("serve", 51), kernel={"syscall": blocked, "files": (kept,)})
    listens = Connection(
        pid=100, namespace="net:[1]", local_address="10.0.0.1", local_port=8000, bytes_moved=None, state="LISTEN",
        remote_address="::", remote_port=0, receive_queue_bytes=0, send_queue_bytes=0, last_sent_ms=None,
        last_received_ms=None,
    )  # fmt: skip
    accepted = replace(listens, state="ESTABLISHED", remote_address="10.0.0.9", remote_port=41700, inode=9,
                       send_queue_bytes=unsent, last_sent_ms=600_000, last_received_ms=600_000)  # fmt: skip
    connections = Connections(connections=(*silent(2, 600.0).connections, listens, accepted))
    (job,) = diagnose(snapshot(serves, rank(1, *c10d(call), frame("help", 9)), connections=connections)).jobs
    finding = job.findings[0]
    assert job.verdict == verdict
    if verdict == "waiting":
        assert "idle: rank 0 is waiting for the next request of pid 9 (shop) on 10.0.0.9:41700" in finding.summary
    if unsent:
        assert "The client does not read" in (finding.remedy or "")
        assert "If you end it, the write fails in the rank" in (finding.remedy or "")


@pytest.mark.parametrize("call", ["broadcast", "all_reduce", "barrier"])
@pytest.mark.parametrize("ended", [True, False])
def test_who_accepts_connections_is_idle_and_a_dead_child_is_shown(call: str, ended: bool) -> None:
    """It may have started a producer, which has ended. A server may begin each round with any call."""
    listener = AwaitedFile(kind="socket", name="socket:[7]", inode=7)
    waits = rank(0, frame("take", 9), kernel={"syscall": "accept4", "files": (listener,)})
    sockets = silent(2, 90.0)
    port = replace(
        sockets.connections[-1], pid=waits.pid, inode=7, state="LISTEN", local_address="::1", local_port=4444
    )
    child = Process(
        pid=70, ppid=waits.pid, role="helper", owner=waits.pid, name="python3", argv=(), state="Z", exit_code=256,
        started_seconds_ago=100.0,
    )  # fmt: skip
    ranks = (waits, rank(1, *c10d(call), frame("help", 9)))
    connections = Connections(connections=(*sockets.connections, port))
    (job,) = diagnose(snapshot(*ranks, *([child] if ended else []), connections=connections), patience=5.0).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.code) == ("waiting", "HD602")
    assert "idle" in finding.summary and "rank 0 is waiting for requests" in finding.summary
    assert ("child process 70 is dead: exited with code 1" in str(finding.evidence)) is ended


@pytest.mark.parametrize(
    ("sent", "received", "more", "found"),
    [
        (60.0, 40.0, {}, True),
        (40.0, 60.0, {}, False),  # answered
        (40.0, 40.0, {}, False),  # nothing came since it was accepted, or the answer came at once
        (40.0, 40.0, {"nothing_sent": True}, True),
        (60.0, 0.2, {}, False),  # it may be in work
        (60.0, 40.0, {"local_port": 4445}, False),  # no client
        (60.0, 40.0, {"state": "CLOSE_WAIT"}, False),  # it has closed
    ],
)
def test_a_server_whose_clients_got_no_answer_is_not_called_idle(
    sent: float, received: float, more: dict[str, Any], found: bool
) -> None:
    """Its engine's thread has ended, or a lock of it was never released: it went on to accept."""
    listener = AwaitedFile(kind="socket", name="socket:[7]", inode=7)
    serves = rank(0, frame("serve", 9), kernel={"syscall": "poll", "files": (listener,)})
    assert isinstance(serves.stack, Stack)
    handler = PythonThread(
        tid=900, name="handler", active=False, owns_gil=False, frames=(frame("answer", 10, source="lock.acquire()"),)
    )
    stack = replace(serves.stack, threads=(*serves.stack.threads, handler))
    assert isinstance(serves.clocks, Clocks)
    at_lock = replace(serves.clocks.threads[0], tid=900, name="handler", syscall="futex", files=())
    clocks = replace(serves.clocks, threads=(*serves.clocks.threads, at_lock))
    result = frame("Future.result", 451, "/usr/lib/python3.11/concurrent/futures/_base.py", library=True)
    asks = replace(
        handler, tid=901, name="poster", frames=(result, frame("do_POST", 25, source="e.submit(q).result()"))
    )
    stack = replace(stack, threads=(*stack.threads, asks))
    serves = replace(serves, stack=stack, stack_before=stack, clocks=clocks)
    sockets = silent(2, 90.0)
    port = replace(
        sockets.connections[-1], pid=serves.pid, inode=7, state="LISTEN", local_address="::1", local_port=4444
    )
    client = replace(
        port, inode=8, state="ESTABLISHED", remote_address="::1", remote_port=41700,
        last_sent_ms=round(sent * 1000), last_received_ms=round(received * 1000),
    )  # fmt: skip
    client = replace(client, **more)
    connections = Connections(connections=(*sockets.connections, port, client))
    (job,) = diagnose(snapshot(serves, rank(1, *c10d("broadcast"), frame("help", 9)), connections=connections)).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.code) == ("waiting", "HD602")
    text = "but a connection has sent data 40 s ago and got no answer since; rank 1 is waiting for it in broadcast"
    assert (text in finding.summary) is found
    assert finding.summary.startswith("idle: ") is not found
    assert (finding.remedy or "").startswith("Nothing.") is not found
    lock = "a thread of pid 100 waits for a lock: no thread releases the lock at train.py:10 `lock.acquire()`"
    waits = "thread poster at train.py:25 `e.submit(q).result()` is waiting for the result of a task"
    assert [text in [each.text for each in finding.evidence] for text in (lock, waits)] == [found, found]


INOTIFY = KernelThread(
    tid=70, name="watcher", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, syscall="poll",
    files=(AwaitedFile(kind="other", name="anon_inode:inotify"),),
)  # fmt: skip
DATAGRAMS = replace(INOTIFY, syscall="recvfrom", wchan="__skb_wait_for_more_packets", files=())
CONNECTIONS = replace(INOTIFY, syscall="accept4", wchan="inet_csk_accept", files=())


@pytest.mark.parametrize(("other", "verdict"), [(INOTIFY, "waiting"), (DATAGRAMS, "waiting"), (CONNECTIONS, "hung")])
def test_a_rank_whose_other_thread_waits_for_the_outside_is_idle(other: KernelThread, verdict: str) -> None:
    """It gets what comes from that thread, by a queue. A thread that accepts connections may belong to torch or a library."""
    gets = (frame("Queue.get", 171, "/usr/lib/python3.11/queue.py"), frame("work", 84, source="path = inbox.get()"))
    ranks = []
    for number in range(2):
        process = rank(number, *gets, kernel={"syscall": "futex"})
        assert isinstance(process.clocks, Clocks)
        ranks.append(replace(process, clocks=replace(process.clocks, threads=(*process.clocks.threads, other))))
    (job,) = diagnose(snapshot(*ranks)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert "requests from one of its threads, which waits for" in job.findings[0].summary


DATAGRAM_SOCKET = AwaitedFile(kind="socket", name="socket:[9]", descriptor=33, inode=9)


@pytest.mark.parametrize(
    ("kernel", "waits"),
    [
        ({"syscall": "read", "files": INOTIFY.files}, "changes of files on inotify"),
        ({"syscall": "poll", "files": (DATAGRAM_SOCKET, *INOTIFY.files)}, "changes of files on inotify"),
        ({"syscall": "recvfrom", "files": (DATAGRAM_SOCKET,), "wchan": DATAGRAMS.wchan}, "datagrams on a socket"),
        ({"syscall": "recvfrom", "files": (DATAGRAM_SOCKET,), "wchan": "wait_woken"}, None),
    ],
)
def test_a_rank_that_waits_for_the_outside_itself_is_idle(kernel: dict[str, object], waits: str | None) -> None:
    """The others wait in the broadcast of what comes."""
    gets = rank(0, frame("serve", 85), kernel=kernel)
    (job,) = diagnose(snapshot(gets, rank(1, *c10d("broadcast"), frame("serve", 9)), silence=80.0)).jobs
    assert job.verdict == ("hung" if waits is None else "waiting")
    assert waits is None or waits in job.findings[0].summary


def test_a_rank_whose_child_waits_for_datagrams_is_idle() -> None:
    """A camera fills a ring in shared memory; the others wait for the frame in scatter."""
    memory = AwaitedFile(
        kind="shared-memory", name="/dev/shm/sem.x", holders=(Holder(pid=70, name="python3", state="S"),)
    )
    source = rank(
        0, frame("frame", 69, source="self.filled.acquire()"), kernel={"syscall": "futex", "files": (memory,)}
    )
    camera = helper(
        70, source.pid, name="python3", clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(DATAGRAMS,))
    )
    (job,) = diagnose(snapshot(source, rank(1, *c10d("scatter"), frame("serve", 9)), camera)).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD602")


@pytest.mark.parametrize(("accepts", "verdict"), [(True, "waiting"), (False, "hung")])
def test_a_rank_whose_child_waits_for_connections_is_idle(accepts: bool, verdict: str) -> None:
    """A study service proposes trials when somebody orders them by HTTP, and prints them."""
    output = AwaitedFile(
        kind="pipe", name="pipe:[5]", holders=(Holder(pid=70, name="python", state="S", accepts=accepts),)
    )
    asks = rank(0, frame("ask", 27, source="line = self.proc.stdout.readline()"),
                kernel={"syscall": "read", "files": (output,)})  # fmt: skip
    waits = KernelThread(
        tid=70, name="python", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, syscall="poll"
    )
    service = helper(70, asks.pid, name="python", clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(waits,)))
    (job,) = diagnose(snapshot(asks, rank(1, *c10d("broadcast"), frame("main", 73)), service)).jobs
    assert job.verdict == verdict
    if accepts:
        assert "requests from its child process (python), which waits for connections" in job.findings[0].summary


def test_ranks_that_all_wait_for_a_signal_are_idle() -> None:
    parked = [rank(number, frame("park", 32), kernel={"syscall": "rt_sigtimedwait"}) for number in range(2)]
    (job,) = diagnose(snapshot(*parked)).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD602")
    late = rank(1, frame("park", 32), kernel={"syscall": "rt_sigtimedwait"})
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("train", 9)), late)).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD202", (1,))


@pytest.mark.parametrize(("call", "verdict"), [("shutdown", "waiting"), ("_barrier", "hung")])
def test_workers_in_the_shutdown_of_rpc_serve_the_one_that_waits(call: str, verdict: str) -> None:
    """Rank 0 waits for an operator's signal, in a group with a timeout of 10 minutes. If it polls for results, the workers that
    are in the shutdown bring no more."""
    meets = (frame("_all_gather", 257, RPC), frame(call, 382, RPC), frame("main", 135))
    desk = rank(0, frame("decision", 100), kernel={"syscall": "rt_sigtimedwait"}, world=3)
    scorers = [rank(number, *meets, kernel={"syscall": "futex", "timed": False}, world=3) for number in (1, 2)]
    (job,) = diagnose(snapshot(desk, *scorers, silence=600.0)).jobs
    assert job.verdict == verdict
    by_file = AwaitedFile(kind="other", name="anon_inode:[signalfd]", descriptor=7)
    reads = rank(0, frame("decision", 100), kernel={"syscall": "read", "files": (by_file,)}, world=3)
    (job,) = diagnose(snapshot(reads, *scorers, silence=600.0)).jobs
    assert job.verdict == verdict
    polls = polls_memory(rank(0, frame("wait_for_results", 35), world=3))
    (job,) = diagnose(snapshot(polls, *scorers, silence=600.0)).jobs
    assert job.verdict == "hung"


@pytest.mark.parametrize(("orphans", "verdict"), [(False, "waiting"), (True, "hung")])
def test_ranks_of_which_each_polls_alone_may_be_idle(orphans: bool, verdict: str) -> None:
    """They look into a folder. None waits for another one. Those whose launcher is gone are left over."""
    ranks = [
        polls_memory(rank(number, frame("wait_for_new", 35), launcher_gone=orphans, ppid=1 if orphans else 99))
        for number in range(2)
    ]
    (job,) = diagnose(snapshot(*ranks, silence=600.0)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert (job.findings[0].code, job.findings[0].confidence) == ("HD602", 0.6)


@pytest.mark.parametrize(("timeout", "verdict"), [(108_000.0, "waiting"), (1800.0, "hung"), (None, "hung")])
def test_who_was_given_a_night_may_wait_for_one(timeout: float | None, verdict: str) -> None:
    """Rank 0 waits for the signal of a scheduler, and the others at a barrier with a timeout of 30 hours."""
    waits = rank(0, frame("park", 68), kernel={"syscall": "rt_sigtimedwait"})
    others = rank(
        1, *c10d("monitored_barrier"), frame("park", 74),
        kernel={"syscall": "futex", "timed": True, "timeout_seconds": timeout},
    )  # fmt: skip
    (job,) = diagnose(snapshot(waits, others, silence=600.0)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert job.findings[0].summary.startswith(
            "idle, or waiting for what never comes: rank 0 is waiting for a signal"
        )


@pytest.mark.parametrize(("outside", "verdict"), [(True, "waiting"), (False, "hung")])
def test_ranks_that_wait_for_a_key_in_the_store_of_a_scheduler(outside: bool, verdict: str) -> None:
    """It is no rank. In the store of a rank, only the ranks set keys."""
    socket = AwaitedFile(kind="socket", name="socket:[9]", descriptor=3, inode=9)
    ranks = [
        rank(number, frame("main", 37, source="store.wait([key])"), kernel={"syscall": "poll", "files": (socket,)})
        for number in range(2)
    ]
    client = replace(silent(2, 600.0).connections[0], local_port=41_000, remote_port=7000, inode=9)
    server = replace(client, pid=100, local_port=7000, remote_port=41_000, inode=10)
    store = [replace(client, pid=101), *([] if outside else [server])]
    connections = Connections(connections=(*silent(2, 600.0).connections, *store))
    (job,) = diagnose(snapshot(*ranks, connections=connections)).jobs
    assert job.verdict == verdict
    if outside:
        assert "the server of their store at 10.0.0.1:7000 may set" in job.findings[0].summary


@pytest.mark.parametrize(
    ("client", "verdict"), [(41_000, "waiting"), (41_001, "hung"), (None, "hung")], ids=["guest", "rank", "none"]
)
def test_ranks_that_wait_for_a_key_which_a_guest_of_their_store_may_set(client: int | None, verdict: str) -> None:
    """An intake is a client of their store. Of the ranks themselves, none can set the key."""

    def connection(pid: int, state: str, local: int, remote: int) -> Connection:
        return Connection(
            pid=pid, namespace="net:[1]", state=state, local_address="127.0.0.1", local_port=local,
            remote_address="127.0.0.1", remote_port=remote, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
            last_sent_ms=600_000, last_received_ms=600_000,
        )  # fmt: skip

    store = [
        connection(100, "LISTEN", 7000, 0), connection(100, "ESTABLISHED", 7000, 42_000),
        connection(100, "ESTABLISHED", 42_000, 7000), connection(101, "ESTABLISHED", 41_001, 7000),
    ]  # fmt: skip
    if client is not None:
        store.append(connection(100, "ESTABLISHED", 7000, client))
    connections = Connections(connections=(*silent(2, 600.0).connections, *store))
    waits = frame("main", 52, source="store.wait([key], SHIFT)")
    (job,) = diagnose(snapshot(rank(0, waits), rank(1, waits), connections=connections)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        summary = job.findings[0].summary
        assert "waiting for a key that the client of their store at 127.0.0.1:41000 may set" in summary


@pytest.mark.parametrize(
    ("header", "client", "asked_ms", "alone"),
    [
        ("while store.add(name, 0) < EXPECTED", None, 100, True),
        ("while store.add(name, 0) < EXPECTED", 41_000, 100, False),
        ("while store.add(name, 0) < EXPECTED", None, 600_000, False),
        ("while not store.check([f'job{EXPECTED}'])", None, 100, True),
        ("while not ready(name, EXPECTED)", None, 100, False),
    ],
)
def test_ranks_that_all_ask_a_store_of_their_own_may_be_idle(
    header: str, client: int | None, asked_ms: int, alone: bool
) -> None:
    """A barrier by hand, for more ranks than there are; or a queue of jobs, whose clients come for one key, or which a thread of
    a rank fills. That there is no other client is shown."""
    ends = [(100, "LISTEN", 7000, 0), (100, "ESTABLISHED", 7000, 42_000), (100, "ESTABLISHED", 42_000, 7000)]
    ends += [(101, "ESTABLISHED", 41_001, 7000), (100, "ESTABLISHED", 7000, 41_001)]
    ends += [(100, "ESTABLISHED", 7000, client)] if client is not None else []
    store = [
        Connection(
            pid=pid, namespace="net:[1]", state=state, local_address="127.0.0.1", local_port=here,
            remote_address="127.0.0.1", remote_port=there, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
            last_sent_ms=asked_ms, last_received_ms=asked_ms,
        )
        for pid, state, here, there in ends
    ]  # fmt: skip
    connections = Connections(connections=(*silent(2, 600.0).connections, *store))
    asks_again = Loop(line=8, end_line=9, header=header)
    polls = frame("meet", 9, loops=(asks_again,), locals=(local("EXPECTED", 4),))
    ranks = [polls_memory(rank(number, polls)) for number in range(2)]
    (job,) = diagnose(snapshot(*ranks, connections=connections), patience=1.0).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD602")
    texts = " ".join(evidence.text for evidence in job.findings[0].evidence)
    assert f"it polls in the loop `{header}`; `EXPECTED` is 4" in texts
    assert ("; only the ranks are clients of that store now" in texts) is alone


def behind_a_front(engine: dict[str, Any], sender: Holder, sends: bool = False) -> tuple[Process, ...]:
    """Rank 0 gets requests by a pipe from the process that has started it, and that one from a front end; rank 1 is in the
    broadcast of the next request."""
    by_engine = Holder(pid=50, name="python", state=engine.get("state", "S"))
    above, below = (
        AwaitedFile(kind="socket", name=f"socket:[{inode}]", descriptor=5, inode=inode, holders=(holder,))
        for inode, holder in ((7, sender), (8, by_engine))
    )
    parent = rank(0, frame("engine", 80), pid=50, role="launcher", identity=None, owner=None, name="python",
                  kernel={"syscall": "read", "files": (above,)}, **engine)  # fmt: skip
    call = "write" if sends else "read"
    first = rank(0, frame("worker", 53), ppid=50, owner=50, kernel={"syscall": call, "files": (below,)})
    return parent, first, rank(1, *c10d("broadcast_object_list"), frame("worker", 57), ppid=50, owner=50)


def at_lock(function: str, line: int, source: str, held: str) -> Frame:
    """A frame of a method that waits for a lock of its object inside the `with` of another one."""
    return frame(function, line, source=source, contexts=(held,), locals=(local("self", "<Server>", address=1),))


@pytest.mark.parametrize(
    ("places", "remedy"),
    [
        (
            (at_lock("a", 10, "with self.y:", "self.x"), at_lock("b", 20, "with self.x:", "self.y")),
            "Look at the threads of pid 50",
        ),
        ((at_lock("collect", 37, "with self.x:", ""), at_lock("ask", 43, "event.wait()", "self.x")), "Nothing"),
        ((at_lock("collect", 37, "with self.condition:", ""),), None),  # it may wait for work
    ],
)
def test_a_lock_of_an_engine_is_evidence_beside_its_idle_ranks(places: tuple[Frame, ...], remedy: str | None) -> None:
    """Its other threads may still serve. Its stack is read once: its threads did not run in the window."""
    parent, *ranks = behind_a_front({}, FRONT)
    assert isinstance(parent.stack, Stack) and isinstance(parent.clocks, Clocks)
    threads = [PythonThread(tid=300 + n, name=f"serve-{n}", active=False, owns_gil=False, frames=(place,))
               for n, place in enumerate(places)]  # fmt: skip
    main = KernelThread(
        tid=0, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, syscall="futex"
    )
    clocks = (*parent.clocks.threads, *(replace(main, tid=thread.tid) for thread in threads))
    parent = replace(
        parent,
        stack=Stack(at_seconds=0.0, threads=(*(replace(t, tid=50) for t in parent.stack.threads), *threads)),
        stack_before=Unavailable(reason="read once"),
        clocks=replace(parent.clocks, threads=clocks),
    )
    (job,) = diagnose(snapshot(parent, *ranks, silence=600.0)).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code) == ("waiting", "HD602")
    locked = [each.text for each in finding.evidence if each.text.startswith("a thread of pid 50 waits for a lock: ")]
    assert bool(locked) is (remedy is not None)
    assert finding.remedy.startswith(remedy or "Nothing")


FRONT = Holder(pid=40, name="front", state="S", waits_for_events=True, accepts=True)


@pytest.mark.parametrize(
    ("engine", "sender", "sends", "verdict", "code"),
    [
        ({}, FRONT, False, "waiting", "HD602"),
        ({}, replace(FRONT, waits_for_events=False, accepts=False), False, "hung", "HD202"),  # it may be stuck
        ({}, replace(FRONT, pid=rank(0).pid), False, "hung", "HD202"),  # the engine waits for the reply of rank 0
        ({"others_stopped": (replace(FRONT, state="T"),)}, replace(FRONT, state="T"), False, "hung", "HD302"),
        ({"state": "T"}, FRONT, False, "hung", "HD302"),
        ({}, FRONT, True, "hung", "HD202"),  # nobody reads what rank 0 writes
    ],
    ids=["idle", "front stuck", "reply owed", "front stopped", "engine stopped", "rank sends"],
)
def test_an_engine_gets_requests_from_the_process_behind_it(
    engine: dict[str, Any], sender: Holder, sends: bool, verdict: str, code: str
) -> None:
    (job,) = diagnose(snapshot(*behind_a_front(engine, sender, sends), silence=600.0)).jobs
    assert (job.verdict, job.findings[0].code) == (verdict, code)
    if sends:
        assert "which is sending data to pid 50 (python)" in job.findings[0].summary


@pytest.mark.parametrize(("state", "remedy"), [("S", "Let pid 30 read, or end it."), ("T", "continue it with SIGCONT")])
def test_a_client_that_does_not_read_is_named(state: str, remedy: str) -> None:
    """Rank 0 sends to its engine, that to the front end, and that to the client."""
    receivers = (Receiver(pid=40, name="front", state="S"), Receiver(pid=30, name="curl", state=state))
    engine = Holder(pid=50, name="python", state="S", sends_to=receivers)
    below = AwaitedFile(kind="socket", name="socket:[8]", descriptor=5, inode=8, holders=(engine,))
    first = rank(0, frame("worker", 53), kernel={"syscall": "write", "files": (below,)})
    (job,) = diagnose(snapshot(first, rank(1, *c10d("all_reduce"), frame("worker", 29)), silence=600.0)).jobs
    finding = job.findings[0]
    last = "is stopped" if state == "T" else "does not read what it is sent"
    assert (job.verdict, finding.code) == ("hung", "HD202")
    assert finding.summary.endswith(f"; beyond it, pid 30 (curl) {last}")
    chain = "pid 50 (python) is sending data to pid 40 (front), which is sending data to pid 30 (curl)"
    assert f"{chain}; pid 30 (curl) {last}" in [evidence.text for evidence in finding.evidence]
    assert remedy in (finding.remedy or "")
    assert "-p 50,40,30" in " ".join(map(str, finding.commands))


@pytest.mark.parametrize(("writer", "verdict"), [(101, "waiting"), (60, "hung")])
def test_ranks_inherit_the_queue_of_their_engine(writer: int, verdict: str) -> None:
    """A process pool: all workers have both ends of the queue of calls. A writer that is no rank may be stuck."""
    parent, first, second = behind_a_front({}, FRONT)
    calls = AwaitedFile(kind="pipe", name="pipe:[7]", descriptor=9, holders=(
        Holder(pid=50, name="python", state="S"), Holder(pid=writer, name="python", state="S")))  # fmt: skip
    first = rank(0, frame("worker", 53), ppid=50, owner=50, kernel={"syscall": "read", "files": (calls,)})
    (job,) = diagnose(snapshot(parent, first, second, silence=600.0)).jobs
    assert job.verdict == verdict


def test_the_stopped_front_end_of_a_daemon_is_named() -> None:
    stopped = replace(FRONT, state="T")
    engine = {"others_stopped": (stopped,), "launcher_gone": True}
    (job,) = diagnose(snapshot(*behind_a_front(engine, stopped), silence=600.0)).jobs
    assert job.findings[0].code == "HD302"


def test_a_connection_of_a_library_brings_no_requests() -> None:
    """The parent waits in its own code; a thread of wandb listens to its service. Rank 0 reads rows that never come."""
    logs = AwaitedFile(
        kind="socket", name="socket:[7]", descriptor=5, inode=7, holders=(replace(FRONT, name="wandb-core"),)
    )
    service = frame("read", 40, "/site-packages/wandb/sock.py", library=True)
    parent = rank(0, service, pid=50, role="launcher", identity=None, owner=None, name="python",
                  kernel={"syscall": "recvfrom", "files": (logs,)})  # fmt: skip
    rows = AwaitedFile(
        kind="pipe", name="/srv/rows.fifo", descriptor=9, holders=(Holder(pid=60, name="etl", state="S"),)
    )
    first = rank(0, frame("rows", 30), kernel={"syscall": "read", "files": (rows,)})
    (job,) = diagnose(snapshot(parent, first, rank(1, *c10d("broadcast"), frame("rows", 34)), silence=600.0)).jobs
    assert job.verdict == "hung"


@pytest.mark.parametrize(
    ("conditions", "loops", "verdict"),
    [((), True, "hung"), (("rank == 0",), True, "waiting"), ((), False, "waiting")],
    ids=["all receive", "only the front end receives", "no loop"],
)
def test_who_has_got_a_request_is_not_idle(conditions: tuple[str, ...], loops: bool, verdict: str) -> None:
    """Each worker has a queue of its own. Rank 0 has failed in the request, and waits for the next one; somebody gave the calls a
    timeout of a day."""
    around = (Loop(line=50, end_line=60, header="while True"),) if loops else ()
    queue = AwaitedFile(kind="pipe", name="pipe:[7]", descriptor=9, holders=(replace(FRONT, pid=1),))
    failed = rank(0, frame("serve", 52, loops=around, conditions=conditions), ppid=1, started_seconds_ago=6000.0,
                  kernel={"syscall": "read", "files": (queue,)})  # fmt: skip
    executes = rank(1, *c10d("all_reduce"), frame("layer", 20), frame("serve", 55, loops=around),
                    kernel={"syscall": "futex", "timeout_seconds": 86_400.0})  # fmt: skip
    (job,) = diagnose(snapshot(failed, executes, silence=6000.0)).jobs
    assert job.verdict == verdict


def test_the_timers_of_an_event_loop_are_no_requests() -> None:
    """Ray's main loop wakes a hundred times a second. That does not make the wait of the other rank young."""
    timer = AwaitedFile(kind="other", name="anon_inode:[timerfd]", descriptor=37)
    wakes = {"syscall": "epoll_wait", "timed": False, "idle_seconds": 0.004}
    hung = []
    for files in ((timer,), ()):
        failed = rank(1, TASKS, kernel=wakes | {"files": files})
        (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("update", 9)), failed, silence=60.0)).jobs
        hung.append(job.verdict)
    assert hung == ["hung", "waiting"]


@pytest.mark.parametrize(("moved", "verdict"), [(8_000, "waiting"), (60, "hung"), (None, "hung"), (1 << 20, "healthy")])
def test_who_asks_other_processes_looks_for_nothing_in_memory(moved: int | None, verdict: str) -> None:
    """Two learners ask a replay buffer four times a second. All workers of Ray share memory."""
    others = (Holder(pid=9, name="raylet", state="S"),)
    ranks = [polls_memory(rank(number, frame("wait_for", 30), others_in_memory=others)) for number in range(2)]
    asked = tuple(
        Connection(pid=process.pid, namespace="net:[1]", state="ESTABLISHED", local_address="127.0.0.1", local_port=4000 + n,
                   remote_address="127.0.0.1", remote_port=6379, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=moved,
                   last_sent_ms=None, last_received_ms=None)
        for n, process in enumerate(ranks)
    )  # fmt: skip
    connections = Connections(connections=(*silent(2, 600.0).connections, *asked))
    (job,) = diagnose(snapshot(*ranks, connections=connections)).jobs
    assert job.verdict == verdict


@pytest.mark.parametrize(("timeout", "verdict"), [(86_400.0, "waiting"), (7200.0, "hung")])
@pytest.mark.parametrize("child", [False, True], ids=["itself", "by its child process"])
def test_a_call_with_as_much_time_as_people_need_may_wait_for_a_server(
    timeout: float, verdict: str, child: bool
) -> None:
    """A checker waits for a licence that another job has; the others are in the all_gather of its result."""
    asks = AwaitedFile(
        kind="socket", name="socket:[7]", descriptor=3, inode=7, holders=(replace(FRONT, name="licences"),)
    )
    pipe = AwaitedFile(
        kind="pipe", name="pipe:[8]", descriptor=9, holders=(Holder(pid=300, name="checker", state="S"),)
    )
    waits = KernelThread(tid=300, name="checker", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
                         syscall="recvfrom", files=(asks,))  # fmt: skip
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(waits,))
    checker = helper(300, 100, frame("main", 12), clocks=clocks)
    file = pipe if child else asks
    first = rank(0, frame("verify", 17), started_seconds_ago=6000.0,
                 kernel={"syscall": "poll" if child else "recvfrom", "files": (file,)})  # fmt: skip
    second = rank(1, *c10d("all_gather"), frame("main", 65), kernel={"syscall": "futex", "timeout_seconds": timeout})
    (job,) = diagnose(snapshot(first, second, *([checker] if child else ()), silence=600.0)).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert "idle, or waiting for what never comes: rank 0 is waiting for a reply" in job.findings[0].summary


def test_a_rank_and_its_child_that_wait_for_each_other_wait_for_no_server() -> None:
    """The child waits at its end of a socket pair for what the rank should send."""
    order = AwaitedFile(kind="socket", name="socket:[7]", descriptor=3, inode=7,
                        holders=(Holder(pid=100, name="python3", state="S", waits_for_events=True),))  # fmt: skip
    reply = AwaitedFile(kind="pipe", name="pipe:[8]", descriptor=9, holders=(Holder(pid=300, name="child", state="S"),))
    waits = KernelThread(tid=300, name="child", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
                         syscall="recvfrom", files=(order,))  # fmt: skip
    child = helper(300, 100, frame("main", 12), clocks=Clocks(window_seconds=1.0, resolution_ns=1, threads=(waits,)))
    first = rank(0, frame("ask", 17), kernel={"syscall": "poll", "files": (reply,)})
    (job,) = diagnose(snapshot(first, rank(1, *c10d("broadcast"), frame("main", 65)), child, silence=600.0)).jobs
    assert job.verdict == "hung"


def test_a_slow_download_for_which_a_rank_polls_is_work() -> None:
    """`while thread.is_alive(): time.sleep(0.5)`, with the others in a barrier."""
    polls = polls_memory(rank(0, frame("fetch", 30)))
    download = Connection(pid=100, namespace="net:[1]", state="ESTABLISHED", local_address="127.0.0.1", local_port=4000,
                          remote_address="127.0.0.1", remote_port=443, receive_queue_bytes=0, send_queue_bytes=0,
                          bytes_moved=40_000, last_sent_ms=None, last_received_ms=None)  # fmt: skip
    connections = Connections(connections=(*silent(2, 600.0).connections, download))
    (job,) = diagnose(snapshot(polls, rank(1, *c10d("barrier"), frame("main", 9)), connections=connections)).jobs
    assert job.verdict == "waiting"


@pytest.mark.parametrize("tasks", [(), (RayTask(pid=9, title="ray::Rollout.play", idle_seconds=47.2),)])
def test_an_idle_actor_shows_the_tasks_of_other_workers(tasks: tuple[RayTask, ...]) -> None:
    """The driver may wait for them."""
    loop = frame("Worker.main_loop", 1069, "/env/lib/python3.11/site-packages/ray/_private/worker.py")
    ranks = [rank(number, loop, ray_tasks=tasks, kernel={"syscall": "futex"}) for number in range(2)]
    (job,) = diagnose(snapshot(*ranks, silence=600.0)).jobs
    finding = job.findings[0]
    texts = [evidence.text for evidence in finding.evidence]
    assert (job.verdict, finding.code) == ("waiting", "HD602")
    assert ("meanwhile, pid 9 (ray::Rollout.play) is in a task, and has not run for 47 s" in texts) is bool(tasks)
    assert ("look at those, if they take too long" in (finding.remedy or "")) is bool(tasks)
    assert ("--pid 9" in " ".join(map(str, finding.commands))) is bool(tasks)


def test_what_all_ranks_wait_for_is_shown_also_if_it_ends_by_itself() -> None:
    """Each rank gets from a child process, which sleeps between two pieces of its work."""
    ranks = []
    for number in range(2):
        child = 300 + number
        pipe = AwaitedFile(
            kind="pipe", name=f"pipe:[{child}]", descriptor=5, holders=(Holder(pid=child, name="actor", state="S"),)
        )
        learns = rank(number, frame("learn", 9), kernel={"syscall": "read", "files": (pipe,)})
        nap = KernelThread(
            tid=child, name="actor", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
            syscall="clock_nanosleep", sleep_seconds=4.0, whole_sleep_seconds=5.0, timed=True,
        )  # fmt: skip
        clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(nap,))
        ranks += [learns, helper(child, learns.pid, frame("play", 6), name="actor", clocks=clocks)]
    (job,) = diagnose(snapshot(*ranks)).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.code, finding.severity) == ("waiting", "HD202", "info")
    assert finding.summary.startswith("ranks 0-1 are waiting for a child process at ")
    assert "sleeps for 4.0 s and then continues" in str(finding.evidence)
    assert "child process 300 is at " in str(finding.evidence)


@pytest.mark.parametrize(("seconds", "codes"), [(0.01, []), (30.0, ["HD202"])])
def test_a_nap_does_not_explain_why_no_rank_makes_progress(seconds: float, codes: list[str]) -> None:
    """A dataset that sleeps for 10 ms after each sample is slow."""
    kernel = {"syscall": "clock_nanosleep", "sleep_seconds": seconds, "whole_sleep_seconds": seconds, "timed": True}
    (job,) = diagnose(snapshot(*(rank(number, frame("read", 9), kernel=dict(kernel)) for number in range(2)))).jobs
    assert (job.verdict, [finding.code for finding in job.findings]) == ("waiting", codes)


@pytest.mark.parametrize(
    ("timeout", "age", "verdict"),
    [(None, 6000.0, "waiting"), (300.0, 250.0, "waiting"), (900.0, 250.0, "waiting"), (900.0, 650.0, "hung")],
)
def test_a_request_with_a_long_timeout_is_none_for_the_next_job(
    timeout: float | None, age: float, verdict: str
) -> None:
    """A push of metrics, while Lightning's other ranks are in its broadcast after each batch."""
    server = Holder(pid=9, name="gateway", state="S", waits_for_events=True)
    asks = AwaitedFile(kind="socket", name="socket:[7]", descriptor=3, inode=7, holders=(server,))

    def push(number: int) -> Process:
        waits = {"syscall": "poll", "files": (asks,), "timeout_seconds": timeout}
        return rank(number, frame("push", 11), started_seconds_ago=9000.0, kernel=waits)

    other = rank(1, *c10d("broadcast"), frame("main", 29), started_seconds_ago=9000.0)
    (job,) = diagnose(snapshot(push(0), other, silence=age)).jobs
    assert job.verdict == verdict
    assert ("counts as HUNG from 10 min on" in job.findings[0].summary) is (timeout == 900.0 and verdict == "waiting")
    (job,) = diagnose(snapshot(push(0), push(1), silence=age)).jobs
    assert job.verdict == "waiting"  # none waits for another one: each may ask for its next job
