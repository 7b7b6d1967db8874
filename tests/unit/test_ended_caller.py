"""A server whose thread that made the calls of its rank has ended."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.ended_caller import find_last_call, has_ended
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import (
    AwaitedFile,
    Connections,
    Exit,
    FlightRecorder,
    Frame,
    Loop,
    PythonThread,
    Recorded,
    RecordedGroup,
    Stack,
)
from tests.unit.builders import c10d, frame, rank, silent, snapshot

THREADING = "/usr/lib/python3.11/threading.py"
ENDLESS = Loop(line=65, end_line=80, header="while True")
STEPS = frame("steps", 69, loops=(ENDLESS,))
TARGET = frame("run_engine", 90, source="try: engine.steps()")
ROOT = (frame("run", 982, THREADING, library=True), frame("_bootstrap", 1002, THREADING, library=True))
BY_LOOP = (frame("broadcast", 3145, "/lib/torch/distributed/distributed_c10d.py", library=True), STEPS, TARGET, *ROOT)
HANDLER = (
    frame("Event.wait", 629, THREADING, library=True, source="signaled = self._cond.wait(timeout)"),
    frame("do_POST", 103, source="inbox.put(q); q.done.wait()"),
)


def serve(call: tuple[Frame, ...], *threads: tuple[Frame, ...], received: float | None = 40.0) -> Job:
    """The diagnosis of a run whose rank 0 has made its last call in the frames `call`, and serves with these other threads."""
    listener = AwaitedFile(kind="socket", name="socket:[7]", inode=7)
    serves = rank(0, frame("serve", 9), kernel={"syscall": "poll", "files": (listener,)})
    assert isinstance(serves.stack, Stack)
    others = [
        PythonThread(tid=900 + at, name=f"Thread-{at}", active=False, owns_gil=False, frames=frames)
        for at, frames in enumerate(threads)
    ]
    read = replace(serves.stack, threads=(*serves.stack.threads, *others))
    done = Recorded(seq=4, op="broadcast", age_seconds=90.0, frames=call)
    record = FlightRecorder(
        source="memory", age_seconds=0.0, groups=(RecordedGroup(name="0", issued=4, completed=done),)
    )
    serves = replace(serves, stack=read, stack_before=read, recorder=record)
    sockets = silent(2, 90.0)
    port = replace(
        sockets.connections[-1], pid=serves.pid, inode=7, state="LISTEN", local_address="::1", local_port=4444
    )
    client = replace(
        port, inode=8, state="ESTABLISHED", remote_address="::1", remote_port=41700, nothing_sent=True,
        last_received_ms=round((received or 0.0) * 1000),
    )  # fmt: skip
    connections = Connections(connections=(*sockets.connections, port, client))
    (found,) = diagnose(snapshot(serves, rank(1, *c10d("broadcast"), frame("help", 9)), connections=connections)).jobs
    return found


@pytest.mark.parametrize("received", [40.0, 1.0])
def test_a_server_whose_engine_thread_has_ended_is_not_idle(received: float) -> None:
    """The next request may start the thread again, so this is no hang."""
    found = serve(BY_LOOP, HANDLER, received=received)
    finding = found.findings[0]
    assert (found.verdict, finding.code) == ("waiting", "HD602")
    assert "but the thread that made its calls (at train.py:69) has ended" in finding.summary
    assert ("got no answer since" in finding.summary) is (received == 40.0)
    assert (finding.remedy or "").startswith("Look at the log of rank 0: an exception may have ended that thread.")


def without(old: Frame, *new: Frame) -> tuple[Frame, ...]:
    """The frames of the call with others in the place of one."""
    at = BY_LOOP.index(old)
    return (*BY_LOOP[:at], *new, *BY_LOOP[at + 1 :])


LEAVES = replace(ENDLESS, exits=(Exit(line=70, statement="break", conditions=("stop",)),))
ASYNC = frame("Handle._run", 80, "/usr/lib/python3.11/asyncio/events.py", library=True)


@pytest.mark.parametrize(
    ("call", "threads"),
    [
        (BY_LOOP, (HANDLER, (frame("Queue.get", 171, "/usr/lib/python3.11/queue.py", library=True), STEPS, TARGET))),
        (BY_LOOP, (HANDLER, (frame("sleep_and_restart", 99), replace(TARGET, line=95)))),
        (BY_LOOP, (HANDLER, (frame("Hub.switch", 9, "/lib/gevent/hub.py", library=True),))),
        (BY_LOOP, (HANDLER, ())),
        (BY_LOOP, (HANDLER,) * 70),
        (BY_LOOP[:-2], (HANDLER,)),
        (without(STEPS, replace(STEPS, loops=())), (HANDLER,)),
        (without(STEPS, replace(STEPS, loops=(LEAVES,))), (HANDLER,)),
        (without(STEPS, replace(STEPS, loops=(replace(ENDLESS, header="while self.alive"),))), (HANDLER,)),
        (without(TARGET, replace(TARGET, source="batch = next(engine.steps())")), (HANDLER,)),
        (without(TARGET, replace(TARGET, source="for batch in engine.steps():")), (HANDLER,)),
        (without(ROOT[0], ASYNC, ROOT[0]), (HANDLER,)),
    ],
    ids=[
        "it waits in its loop", "a supervisor may start it again", "greenlets", "a thread could not be read",
        "more threads than are read", "the main thread", "a thread for each request", "the loop has an end",
        "the loop has a test", "a generator that is asked", "a generator in a loop", "coroutines",
    ],
)  # fmt: skip
def test_where_an_engine_may_go_on_no_thread_has_ended(call: tuple[Frame, ...], threads: tuple[Any, ...]) -> None:
    """Clients may have open connections to which nothing is due."""
    found = serve(call, *threads)
    assert (found.verdict, found.findings[0].code) == ("waiting", "HD602")
    assert "has ended" not in found.findings[0].summary


def test_a_rank_in_a_call_has_no_last_one() -> None:
    done, asked = (Recorded(seq=at, op="broadcast", age_seconds=9.0 - at, frames=BY_LOOP) for at in (4, 5))
    group = RecordedGroup(name="0", issued=5, completed=done)
    record = FlightRecorder(source="memory", age_seconds=0.0, groups=(group,))
    assert find_last_call(record) is done
    assert has_ended(done, Stack(at_seconds=0.0, threads=())) is False
    assert find_last_call(replace(record, groups=(replace(group, pending=(asked,)),))) is None
    assert find_last_call(replace(record, groups=(replace(group, on_card=True),))) is None
