"""The processes for which a rank waits outside of torch.distributed, from real processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hangdoc.observe.kernel import file_holders, process_table, shared_memory, system_calls
from hangdoc.observe.outside import awaited_processes, lock_files, peers, processes_at_work, ray_tasks, receivers
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import (
    AwaitedFile,
    Clocks,
    FlightRecorder,
    Frame,
    Holder,
    KernelThread,
    Loop,
    PythonThread,
    Recorded,
    RecordedGroup,
    Stack,
)
from tests.unit.builders import frame, local, stack
from tests.unit.test_what_ranks_wait_for import PROC, child, waits_on

pytestmark = pytest.mark.usefixtures("can_attach")

SERVER = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
print("accepted", flush=True)
{then}
"""


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of an earlier test's processes."""
    for cache in (
        peers._read_sockets,
        peers._read_owners,
        shared_memory._read_mapped,
        processes_at_work._works,
        processes_at_work._find_bystanders,
        processes_at_work._find_other_runs,
        processes_at_work.read_table,
        processes_at_work._find_relatives,
        receivers._find_receiver,
    ):
        cache.cache_clear()
    monkeypatch.setattr(processes_at_work, "_samples", processes_at_work._Samples())


def who_replies(
    waiting: int,
    file: str = "/home/me/train.py",
    kind: str = "socket",
    observed: frozenset[int] = frozenset(),
    switches: int = 0,
    since: float | None = None,
) -> tuple[Holder, ...] | None:
    """The holders of what the main thread of a process waits for, whose Python code is in `file`. `switches`: how often it was
    woken in one second. `since`: when it began to wait."""
    main = KernelThread(
        tid=waiting, name="python3", state="S", cpu_ns=0, voluntary_switches=switches, involuntary_switches=0,
        files=(waits_on(waiting, kind),),
    )  # fmt: skip
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
    asks = stack(frame("ask", 7, file))
    (found,) = awaited_processes.named(PROC, waiting, clocks, asks, observed, since=since).threads
    return found.files[0].holders


@contextmanager
def asked(then: str, *, accepts: bool = True) -> Iterator[tuple[int, int]]:
    """The pids of a server, which does `then`, and of a client that waits for its reply."""
    program = SERVER if accepts else SERVER.replace("connection, _ = server.accept()", "")
    client = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    with child(program.format(then=then), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        with child(client, server.stdout.readline().decode()) as waiting:
            assert server.stdout.readline()
            yield server.pid, waiting.pid


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("then", "file", "expected"),
    [
        ("while True: pass", "/home/me/train.py", [True]),
        ("while True:\n    time.sleep(1.2)\n    sum(range(5_000_000))", "/home/me/train.py", [True]),
        ("time.sleep(99)", "/home/me/train.py", [False]),
        ("time.sleep(99)", "/site-packages/torch/distributed/rendezvous.py", None),
    ],
)
def test_who_has_to_reply(then: str, file: str, expected: list[bool] | None) -> None:
    with asked(then) as (server, waiting):
        holders = who_replies(waiting, file)
    assert (holders and [one.pid for one in holders]) == (expected and [server])
    assert (holders and [one.works for one in holders]) == expected


@pytest.mark.usefixtures("no_cache")
def test_the_host_is_searched_for_the_other_end_only_if_it_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Collection[int] | None] = []
    read = file_holders.open_files

    def noted(proc: ProcFS, pids: Collection[int] | None = None) -> Iterator[tuple[int, dict[str, str] | None]]:
        searched.append(pids)
        return read(proc, pids)

    monkeypatch.setattr(file_holders, "open_files", noted)
    with asked("time.sleep(99)") as (server, waiting):
        assert peers.of_processes(PROC, {waiting}, 0, frozenset({server, waiting})) == {server}
        assert None not in searched
        assert peers.of_processes(PROC, {waiting}, 0, frozenset({waiting})) == {server}
        assert searched[-1] is None


@pytest.mark.usefixtures("no_cache")
def test_a_pair_of_sockets_that_a_process_inherited_is_searched_on_the_whole_host() -> None:
    """A controller forks a rank, and both have both ends, as with multiprocessing.Pipe. Only the controller will send."""
    forks = """
import os, socket, time
mine, other = socket.socketpair()
if (forked := os.fork()) == 0:
    other.recv(1)
print(forked, os.fstat(other.fileno()).st_ino, flush=True)
time.sleep(99)
"""
    with child(forks, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        forked, inode = map(int, controller.stdout.readline().split())
        try:
            assert set(peers.of_socket(PROC, inode, 0, frozenset({forked}))) == {controller.pid, forked}
        finally:
            os.kill(forked, signal.SIGKILL)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("then", ["time.sleep(99)", "while True: pass"])
def test_who_does_not_read_what_the_one_that_has_to_reply_sends(then: str) -> None:
    """A server sends to a proxy, and that to a client, which sleeps or computes before it reads."""
    sends = "socket.create_connection(('127.0.0.1', {port})).sendall(bytes(1 << 26))"
    with child(SERVER.format(then=then), stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        port = int(client.stdout.readline())
        with child(SERVER.format(then=sends.format(port=port)), stdout=subprocess.PIPE) as proxy:
            assert proxy.stdout is not None
            port = int(proxy.stdout.readline())
            with asked(sends.format(port=port)) as (server, waiting):
                assert proxy.stdout.readline()
                assert client.stdout.readline()
                waits_in(proxy.pid, *system_calls.SENDS)
                waits_in(server, *system_calls.SENDS)
                (holder,) = who_replies(waiting) or ()
    assert holder.pid == server
    receivers = [each.pid for each in holder.sends_to]
    expected = (True, client.pid, []) if "True" in then else (False, None, [proxy.pid, client.pid])
    assert (holder.works, holder.behind, receivers) == expected


def waits_in(pid: int, *calls: str) -> None:
    """Wait until the main thread of a process is in one of some system calls."""
    for _ in range(400):
        if system_calls.current(PROC, f"{pid}/task/{pid}")[0] in calls:
            return
        time.sleep(0.05)
    pytest.fail(f"it is never in {calls}")


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("switches", "works"), [(0, True), (20, False)])
def test_to_reply_to_a_poll_is_no_work(switches: int, works: bool) -> None:
    """The manager of a pool replies to each poll of its queue, whatever the pool does."""
    client = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    connection.sendall(b"?" * 1024)
    connection.recv(1024, socket.MSG_WAITALL)
"""
    then = (
        "import os\nwhile True:\n    os.read(connection.fileno(), 1024)\n    time.sleep(0.05)\n"
        "    os.write(connection.fileno(), b'-' * 1024)"
    )
    with child(SERVER.format(then=then), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode()
        with child(client, port) as waiting:
            assert server.stdout.readline()
            (holder,) = who_replies(waiting.pid, switches=switches) or ()
    assert (holder.pid, holder.works, holder.replies) == (server.pid, works, not works)


@pytest.mark.usefixtures("no_cache")
def test_who_has_to_reply_on_a_unix_socket() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        client = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).recv(1)"
        with child(client, str(its.fileno()), pass_fds=(its.fileno(),)) as waiting:
            its.close()
            assert [one.pid for one in who_replies(waiting.pid) or ()] == [os.getpid()]


@pytest.mark.usefixtures("no_cache")
def test_who_has_to_reply_in_another_network_namespace() -> None:
    """As in a container. Both ends have the loopback addresses of the namespace, which say nothing in another one."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    both = r"""
import os, socket
server = socket.create_server(("127.0.0.1", 0))
if os.fork():
    connection, _ = server.accept()
    os.write(1, b"%d\n" % os.getpid())
    while True:
        pass
client = socket.create_connection(server.getsockname())
server.close()
os.write(1, b"%d\n" % os.getpid())
client.recv(1)
"""
    inside = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", inside, "sh", sys.executable, "-c", both]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(2)}
        assert process.pid in pids
        (client,) = pids - {process.pid}
        assert [(one.pid, one.works) for one in who_replies(client) or ()] == [(process.pid, True)]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


BROKER = """
import os, socket, time
server = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    connection = socket.create_connection(server.getsockname())
    os.write(1, b"filler %d\\n" % os.getpid())
    {then}
first, _ = server.accept()
os.write(1, b"port %d\\n" % server.getsockname()[1])
second, _ = server.accept()
print("accepted", flush=True)
first.recv(1)
"""


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("then", "works"), [("while True: pass", True), ("time.sleep(99)", False)])
@pytest.mark.parametrize("observed", [True, False])
def test_a_server_of_queues_waits_for_the_one_that_fills_them(then: str, works: bool, observed: bool) -> None:
    """A rank of the run counts by itself, not behind a server. The one that fills them is a daemon."""
    client = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    with child(BROKER.format(then=then), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        said = dict(server.stdout.readline().decode().split() for _ in range(2))
        filler = int(said["filler"])
        try:
            with child(client, said["port"]) as waiting:
                assert server.stdout.readline()
                (found,) = who_replies(waiting.pid, observed=frozenset({filler}) if observed else frozenset()) or ()
        finally:
            os.kill(filler, signal.SIGKILL)
    assert (found.pid, found.works) == (server.pid, works and not observed)
    assert found.behind == (filler if found.works else None)


@pytest.mark.usefixtures("no_cache")
def test_what_a_stopped_process_did_a_moment_ago_is_over() -> None:
    """The sample of the host may be older than the stop."""
    with asked("while True: pass") as (server, waiting):
        (before,) = who_replies(waiting) or ()
        os.kill(server, signal.SIGSTOP)
        os.waitid(os.P_PID, server, os.WSTOPPED | os.WNOWAIT)
        (after,) = who_replies(waiting) or ()
    assert (before.works, after.works, after.state) == (True, False, "T")


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("least", "counts"), [(processes_at_work.INHERITED, True), (processes_at_work.ASKED, False)])
def test_a_process_that_shares_a_semaphore_waits_for_its_own_time(least: object, counts: bool) -> None:
    """A robot charges for minutes in `Event.wait(490)`, while the rank asks its semaphore again every 20 s. A thread of a server
    may wait for any request so."""
    with child("import threading; threading.Event().wait(490)") as charges:
        waits_in(charges.pid, "futex")
        (holder,) = file_holders.read_holders(PROC, [charges.pid])
        later = time.monotonic() + 30.0
        (judged,) = processes_at_work.judged(PROC, (holder,), os.getpid(), least, since=later) or ()  # type: ignore[arg-type]
    assert judged.sleeps == (pytest.approx((490.0,), abs=1.0) if counts else ())


@pytest.mark.usefixtures("no_cache")
def test_how_long_the_one_that_has_to_reply_sleeps() -> None:
    with asked("time.sleep(99)") as (_, waiting):
        (found,) = who_replies(waiting) or ()
    assert not found.works
    (seconds,) = found.sleeps
    assert 90 < seconds < 100


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel has no /proc/PID/sched")
@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("earlier", "counts"), [(0.0, True), (30.0, False)])
def test_a_handler_that_waits_for_its_time_since_the_request_came(earlier: float, counts: bool) -> None:
    """A wait with a timeout that began at another time is that of a thread that has nothing to do with the request."""
    with asked("import threading; threading.Event().wait(90)") as (_, waiting):
        began = time.monotonic()
        (found,) = who_replies(waiting, since=began - earlier) or ()
    assert not found.works
    assert [80 < seconds < 95 for seconds in found.sleeps] == [True] * counts


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel has no /proc/PID/sched")
@pytest.mark.usefixtures("no_cache")
def test_the_timeout_of_a_call_of_torch_is_no_sleep_of_the_rank_that_is_in_it() -> None:
    """A rank has to reply that waits in a barrier, which began at about the same time."""
    with asked("import threading; threading.Event().wait(90)") as (server, waiting):
        (found,) = who_replies(waiting, observed=frozenset({server}), since=time.monotonic()) or ()
    assert (found.pid, found.sleeps) == (server, ())


@pytest.mark.usefixtures("no_cache")
def test_a_server_that_has_not_accepted_the_connection() -> None:
    with asked("time.sleep(99)", accepts=False) as (server, waiting):
        (found,) = who_replies(waiting) or ()
    assert (found.pid, found.works) == (server, False)


@pytest.mark.usefixtures("no_cache")
def test_a_stopped_process_does_not_wake_up() -> None:
    """Its sleep has ended long ago, but nothing continues it."""
    with asked("time.sleep(99)") as (server, waiting):
        os.kill(server, signal.SIGSTOP)
        while PROC.stat(str(server)).state != "T":
            pass
        (found,) = who_replies(waiting) or ()
    assert (found.state, found.works, found.sleeps) == ("T", False, ())


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("then", "works"), [("while True: pass", True), ("time.sleep(99)", False)])
def test_a_process_that_is_connected_with_a_child_process(then: str, works: bool) -> None:
    """The rank waits for its child, which waits for a reply."""
    ask = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ask!r}, sys.argv[1]])"
    with child(SERVER.format(then=then), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode()
        with child(parent, port) as waiting:
            assert server.stdout.readline()
            main = KernelThread(
                tid=waiting.pid, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
                syscall="wait4",
            )  # fmt: skip
            clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
            waits = stack(frame("run", 7, "/lib/subprocess.py"))
            found = awaited_processes.beside(PROC, waiting.pid, clocks, waits, frozenset())
            assert awaited_processes.beside(PROC, waiting.pid, clocks, waits, frozenset({server.pid})) == ()
            of_ray, in_ray = in_worker_of_ray(waiting.pid)
            also = awaited_processes.beside(PROC, waiting.pid, of_ray, in_ray, frozenset())
    assert [one.pid for one in found] == [one.pid for one in also] == ([server.pid] if works else [])


def in_worker_of_ray(pid: int) -> tuple[Clocks, Stack]:
    """A worker of Ray Train that waits for a task of Ray: its training function has a thread, and the main thread runs now."""
    loop = frame("Worker.main_loop", 1069, "/x/site-packages/ray/_private/worker.py", library=True)
    starts = "/x/site-packages/ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    trains = (frame("train", 7), frame("ThreadRunner.run.<locals>._run_target", 37, starts, library=True))
    threads = [
        PythonThread(tid=tid, name=name, active=False, owns_gil=False, frames=frames)
        for tid, name, frames in ((pid, "MainThread", (loop,)), (1, "TrainingThread", trains))
    ]
    kernel = [
        KernelThread(tid=tid, name="ray", state=state, cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
        for tid, state in ((pid, "R"), (1, "S"))
    ]
    return Clocks(window_seconds=1.0, resolution_ns=1, threads=tuple(kernel)), Stack(
        at_seconds=0.0, threads=tuple(threads)
    )


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("then", "works"), [("while True: pass", True), ("time.sleep(99)", False)])
def test_a_process_of_the_same_job_as_a_rank_that_polls(then: str, works: bool, tmp_path: Path) -> None:
    """A script starts what prepares the data, and then a rank that looks for them."""
    prepares = f"import time; print(1, flush=True)\n{then}"
    looks = "import sys, time; print(1, flush=True); time.sleep(99)"
    job = f"""
import subprocess, sys
other = subprocess.Popen([sys.executable, "-c", {prepares!r}], stdout=subprocess.PIPE)
other.stdout.readline()
rank = subprocess.Popen([sys.executable, "-c", {looks!r}], stdout=subprocess.PIPE)
rank.stdout.readline()
print(other.pid, rank.pid, flush=True)
rank.wait()
"""
    with child(job, stdout=subprocess.PIPE, cwd=tmp_path) as script:
        assert script.stdout is not None
        other, rank = map(int, script.stdout.readline().split())
        found = awaited_processes.beside(PROC, rank, asleep(rank), stack(frame("wait_for", 7)), frozenset())
        meets = stack(frame("next_rendezvous", 5, "/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"))
        starting = awaited_processes.starting_beside(PROC, rank, meets, frozenset())
        assert awaited_processes.starting_beside(PROC, rank, stack(frame("wait_for", 7)), frozenset()) == ()
    assert [(one.pid, one.works) for one in found] == [(other, works)]
    assert [round(seconds) for one in found for seconds in one.sleeps] == ([] if works else [99])
    assert starting == (found if works else ())


def asleep(pid: int) -> Clocks:
    """The clocks of a process whose main thread sleeps between two looks for a file."""
    main = KernelThread(
        tid=pid, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
        syscall="clock_nanosleep", sleep_seconds=90.0,
    )  # fmt: skip
    return Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("same", [True, False])
def test_a_daemon_in_the_directory_of_a_rank_that_polls(same: bool, tmp_path: Path) -> None:
    """It was started before the job, and answers through files."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    daemon = child("while True: pass", cwd=tmp_path if same else elsewhere)
    with daemon as farm, child("import time; time.sleep(99)", cwd=tmp_path) as rank:
        found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), stack(frame("wait_for", 7)), frozenset())
    assert [one.pid for one in found if one.works] == ([farm.pid] if same else [])


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("pending", [True, False])
def test_who_waits_in_a_backward_with_a_recorded_call_waits_for_nobody_outside(pending: bool, tmp_path: Path) -> None:
    """The host was searched for it at each poll, which was half of what a poll of a frozen run cost."""
    call = Recorded(seq=2, op="all_reduce", age_seconds=9.0)
    group = RecordedGroup(name="0", issued=2, pending=(call,) if pending else ())
    record = FlightRecorder(source="memory", age_seconds=0.0, groups=(group,))
    waits = stack(frame("_engine_run_backward", 979, "/lib/torch/autograd/graph.py", library=True))
    with child("while True: pass", cwd=tmp_path) as farm, child("import time; time.sleep(99)", cwd=tmp_path) as rank:
        found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), waits, frozenset(), None, record)
        hooks = PythonThread(tid=7, name="Dummy-1", active=False, owns_gil=False, frames=(frame("hook", 3),))
        hooked = Stack(at_seconds=0.0, threads=(*waits.threads, hooks))  # a thread of autograd runs Python code
        also = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), hooked, frozenset(), None, record)
    assert [one.pid for one in found if one.works] == ([] if pending else [farm.pid])
    assert [one.pid for one in also if one.works] == [farm.pid]


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("name", "main", "sleeps"), [
    ("gloo_tcp_loop", False, False), ("exporter", False, True), ("pt_thread_pool", False, True), ("pt_gloo.sh", True, True),
])  # fmt: skip
def test_a_thread_of_gloo_does_not_sleep_for_others(name: str, main: bool, sleeps: bool, tmp_path: Path) -> None:
    """A rank of another run, in the same directory, waits in a collective. A main thread has the name of its program."""
    waits = f"def wait(): open('/proc/thread-self/comm', 'w').write({name!r}); select.epoll().poll(99)"
    where = "wait()" if main else "threading.Thread(target=wait).start(); select.epoll().poll()"
    program = f"import select, threading\n{waits}\n{where}"
    with child(program, cwd=tmp_path) as other, child("import time; time.sleep(99)", cwd=tmp_path) as rank:
        waits_in(other.pid, "epoll_wait")
        found = processes_at_work.asleep(PROC, rank.pid, frozenset(), for_files=True)
    assert [(one.pid, one.sleeps) for one in found] == ([(other.pid, (99.0,))] if sleeps else [])


POLLS = Loop(line=3, end_line=9, header="while os.path.exists(LOCK)")


def in_the_way(rank: subprocess.Popen[bytes], *frames: Frame) -> tuple[AwaitedFile | None, Stack]:
    """The path whose end a process polls for with a variable of its main module, and the stack that shows that."""
    main = PythonThread(tid=rank.pid, name="MainThread", active=False, owns_gil=False, frames=frames)
    waits = Stack(at_seconds=0.0, threads=(main,))
    ticks, module = PROC.stat(str(rank.pid)).start_ticks, (local("LOCK", "'prepare.lock'"),)
    return lock_files.polled(PROC, rank.pid, ticks, waits, asleep(rank.pid), module), waits


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("left_over", "launched"), [(True, True), (True, False), (False, True)])
def test_a_run_that_started_after_a_lock_was_made_does_not_remove_it(
    left_over: bool, launched: bool, tmp_path: Path
) -> None:
    """`while os.path.exists(lock)`, beside another run in the same directory, or a process that may consume the file."""
    lock = tmp_path / "prepare.lock"
    if left_over:
        lock.touch()
        time.sleep(2.5)  # more than the two clocks may differ by
    program = tmp_path / ("torchrun" if launched else "consume")
    program.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])")
    words = [sys.executable, str(program), *(["--nproc-per-node", "2", "train.py"] if launched else [])]
    with subprocess.Popen(words, cwd=tmp_path, start_new_session=True) as other:
        try:
            while not (works := _busy_below(other.pid)):
                time.sleep(0.02)
            lock.touch() if not left_over else None
            with child("import time; time.sleep(99)", cwd=tmp_path) as rank:
                main = frame("<module>", 7, loops=(POLLS,))
                polled, waits = in_the_way(rank, main)
                assert polled is not None
                assert (polled.kind, polled.name) == ("in-the-way", str(lock))
                found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), waits, frozenset(), polled)
                lock.unlink()
                assert in_the_way(rank, main)[0] is None
        finally:
            os.killpg(other.pid, signal.SIGKILL)
    shown = [(one.pid, one.of_run) for one in found if one.works and one.pid in works]
    assert shown == ([] if left_over and launched else [(pid, launched) for pid in works])


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("launched", [True, False])
def test_what_waits_for_the_end_of_another_run_does_not_end_this_wait(launched: bool, tmp_path: Path) -> None:
    """`timeout 99 torchrun ...`, and `timeout 99 hangdoc watch`, which sleeps between two looks."""
    lock = tmp_path / "prepare.lock"
    lock.touch()
    time.sleep(2.5)  # more than the two clocks may differ by
    program = tmp_path / ("torchrun" if launched else "hangdoc")
    program.write_text(
        "import subprocess, sys, time\n"
        + ("subprocess.run([sys.executable, '-c', 'while True: pass'])" if launched else "time.sleep(99)")
    )
    words = ["timeout", "99", sys.executable, str(program)] + (["--nproc-per-node", "2", "train.py"] * launched)
    with subprocess.Popen(words, cwd=tmp_path, start_new_session=True) as other:
        try:
            while not (table := process_table.read(PROC)).children(other.pid) or (
                launched and not _busy_below(other.pid)
            ):
                time.sleep(0.02)
            if not launched:
                waits_in(table.children(other.pid)[0], "clock_nanosleep")
            with child("import time; time.sleep(99)", cwd=tmp_path) as rank:
                polled, waits = in_the_way(rank, frame("<module>", 7, loops=(POLLS,)))
                found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), waits, frozenset(), polled)
        finally:
            os.killpg(other.pid, signal.SIGKILL)
    assert found == ()


@pytest.mark.parametrize("how", ["touch", "rename", "link"])
def test_a_path_is_as_old_as_the_last_change_of_it(how: str, tmp_path: Path) -> None:
    """A file that takes the place of the lock keeps its own time, and so does what a link leads to."""
    lock, source = tmp_path / "prepare.lock", tmp_path / "source"
    with child("import time; time.sleep(99)", cwd=tmp_path) as rank:
        source.touch()
        os.utime(source, (time.time() - 3600,) * 2)
        if how == "touch":
            lock.touch()
        elif how == "rename":
            source.rename(lock)
        else:
            lock.symlink_to(source)
        polled, _ = in_the_way(rank, frame("<module>", 7, loops=(POLLS,)))
    assert polled is not None
    assert polled.changed_seconds_ago is not None
    assert polled.changed_seconds_ago < 60


def test_a_variable_of_the_main_module_is_not_one_of_another_module(tmp_path: Path) -> None:
    (tmp_path / "prepare.lock").touch()
    main = frame("<module>", 3)
    with child("import time; time.sleep(99)", cwd=tmp_path) as rank:
        other, _ = in_the_way(rank, frame("wait", 7, "/home/me/cache.py", loops=(POLLS,)), main)
        own, _ = in_the_way(rank, frame("wait", 7, loops=(POLLS,)), main)
    assert other is None
    assert own is not None


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("typed", [True, False])
def test_what_a_person_has_open_in_the_directory_of_a_rank_helps_it_with_nothing(typed: bool, tmp_path: Path) -> None:
    """Another hangdoc, and a shell at a terminal. One that reads a script from a pipe has the same command line."""
    (tmp_path / "hangdoc").write_text("while True: pass")
    terminal, inner = os.openpty()
    with ExitStack() as started:
        started.callback(os.close, terminal)
        top = subprocess.Popen([sys.executable, tmp_path / "hangdoc", "top"], cwd=tmp_path)
        stdin = inner if typed else subprocess.PIPE
        shell = subprocess.Popen(["bash", "--norc"], cwd=tmp_path, stdin=stdin, stdout=inner, stderr=inner)
        for process in (top, shell):
            started.callback(process.wait)
            started.callback(process.kill)
        os.close(inner)
        with os.fdopen(os.dup(terminal), "wb") if shell.stdin is None else shell.stdin as script:
            script.write(b"while true; do :; done\n")
            script.flush()
            while int(Path(f"/proc/{shell.pid}/stat").read_text().rpartition(")")[2].split()[11]) < 20:
                time.sleep(0.02)  # until it has started to work
            mine = started.enter_context(subprocess.Popen(["sleep", "99"], cwd=tmp_path))  # after which I do nothing
            started.callback(mine.kill)
            alone = started.enter_context(child("import time; time.sleep(99)", cwd=tmp_path))
            waits_in(alone.pid, "clock_nanosleep")
            rank = started.enter_context(child("import time; time.sleep(99)", cwd=tmp_path))
            found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), stack(frame("wait_for", 7)), frozenset())
    shown = [(one.pid, one.works) for one in found]
    assert shown == ([(alone.pid, False)] if typed else [(shell.pid, True)])
    # A sleep is as long as it was asked for, however long ago that was.
    assert not typed or found[0].sleeps == pytest.approx((99.0,), abs=0.1)


@pytest.mark.usefixtures("no_cache")
def test_the_launcher_of_another_run_ends_no_wait(tmp_path: Path) -> None:
    """It looks after its ranks ten times a second, in the directory in which a rank of this run polls."""
    program = tmp_path / "torchrun"
    program.write_text("import time\nwhile True: time.sleep(0.1)")
    words = [sys.executable, str(program), "--nproc-per-node", "2", "train.py"]
    with ExitStack() as started:
        for command in (words, [sys.executable, str(program), "other"]):
            process = subprocess.Popen(command, cwd=tmp_path)
            started.callback(process.wait)
            started.callback(process.kill)
        rank = started.enter_context(child("import time; time.sleep(99)", cwd=tmp_path))
        entries = process_table.read(PROC)
        assert [process_table.is_launcher(entries[pid]) for pid in (process.pid, rank.pid)] == [True, False]
        found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), stack(frame("wait_for", 7)), frozenset())
    assert found == ()


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("for_files", [True, False])
def test_a_rank_of_another_run_may_only_make_files(for_files: bool, tmp_path: Path) -> None:
    """It works in the directory of a rank that polls, below a launcher that a script has started."""
    program = tmp_path / "torchrun"
    program.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])")
    script = tmp_path / "start.sh"
    script.write_text(f"{sys.executable} {program} --nproc-per-node 2 train.py\ntrue\n")
    loop = Loop(line=1, end_line=9, header="while not os.path.exists(path)" if for_files else "while not is_ready()")
    with subprocess.Popen(["bash", script], cwd=tmp_path, start_new_session=True) as other:
        try:
            while not (works := _busy_below(other.pid)):
                time.sleep(0.02)
            with child("import time; time.sleep(99)", cwd=tmp_path) as rank:
                looks = stack(frame("wait_for", 7, loops=(loop,)))
                found = awaited_processes.beside(PROC, rank.pid, asleep(rank.pid), looks, frozenset())
        finally:
            os.killpg(other.pid, signal.SIGKILL)
    shown = [one.pid for one in found if one.works]
    assert shown == (sorted({other.pid, *works}) if for_files else [])


def _busy_below(pid: int) -> list[int]:
    """The descendants of a process that have used some CPU time, but for launchers."""
    table = process_table.read(PROC)
    below = (table[member] for member in table.descendants(pid))
    return [one.pid for one in below if not process_table.is_launcher(one) and one.stat.cpu_ticks >= 20]


SHARING = """
import multiprocessing, os, time
context = multiprocessing.get_context("fork")
event = context.Event()
worker = os.fork()
if worker == 0:
    {worker}
{after}
print(worker, flush=True)
event.wait()
"""


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("then", "works"), [("while True: pass", [True]), ("time.sleep(99)", [False]), ("os._exit(0)", [])]
)
def test_who_shares_the_memory_with_a_lock(then: str, works: list[bool]) -> None:
    with child(SHARING.format(worker=then, after="pass" if works else "os.wait()"), stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        worker = int(waiting.stdout.readline())
        found = who_replies(waiting.pid, kind="shared-memory")
    known = [(one.pid, one.works) for one in found or () if one.pid == worker]
    assert known == [(worker, one) for one in works]


PUTS = """
import multiprocessing, os, time
queue = multiprocessing.Queue(1)
taker = os.fork()
if not taker:
    time.sleep(99)
print(taker, flush=True)
queue.put(0)
queue.put(0)
"""


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("function", ["Queue.put", "Queue.get"])
def test_who_can_take_from_the_full_queue_of_a_child_process(function: str) -> None:
    """Of a child process, only that is searched: its other waits in shared memory are mostly for its rank."""
    with child(PUTS, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        taker = int(waiting.stdout.readline())
        main = KernelThread(
            tid=waiting.pid, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
            files=(waits_on(waiting.pid, "shared-memory"),),
        )  # fmt: skip
        clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
        seen = stack(frame(function, 311, "/usr/lib/python3.11/multiprocessing/queues.py"))
        (found,) = awaited_processes.named(PROC, waiting.pid, clocks, seen, frozenset(), inherited=False).threads
    holders = found.files[0].holders
    assert [one.pid for one in holders or ()] == ([taker] if function == "Queue.put" else [])


@pytest.mark.usefixtures("no_cache")
def test_those_at_work_come_first() -> None:
    """Of a pipe that more processes have inherited than a report shows, as the ranks of a launcher do."""
    reader = "import os, sys; os.read(int(sys.argv[1]), 1)"
    idle = "import time; time.sleep(99)"
    ours, its = os.pipe()
    with ExitStack() as started:
        try:
            asleep = [started.enter_context(child(idle, pass_fds=(its,))).pid for _ in range(8)]
            while any(system_calls.current(PROC, str(pid))[0] not in system_calls.SLEEPS for pid in asleep):
                time.sleep(0.02)  # to start Python is work
            busy = started.enter_context(child("while True: pass", pass_fds=(its,)))
            waiting = started.enter_context(child(reader, str(ours), pass_fds=(ours,)))
        finally:
            os.close(ours)
            os.close(its)  # this process is at work, too
        found = who_replies(waiting.pid, kind="pipe")
    assert found is not None
    assert [one.works for one in found] == [True] + [False] * 7
    assert found[0].pid == busy.pid


@pytest.mark.usefixtures("no_cache")
def test_a_process_that_has_not_run_for_long_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel knows since when it is at rest, so nobody waits for another sample of it."""
    with asked("time.sleep(99)") as (server, waiting):
        time.sleep(3.1)
        monkeypatch.setattr(processes_at_work.time, "sleep", refuse)
        assert [(one.pid, one.works) for one in who_replies(waiting) or ()] == [(server, False)]


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("used", "works"), [(0, False), (2_000_000, True)])
def test_the_sample_of_the_period_before_serves_the_next(
    monkeypatch: pytest.MonkeyPatch, used: int, works: bool
) -> None:
    """`top` does not wait for a sample of what it has seen three seconds ago. `used`: bytes written since."""
    with asked("time.sleep(99)") as (server, _):
        last_runs = {(server, server): time.monotonic()}
        monkeypatch.setattr(processes_at_work, "_read_last_runs", lambda *_: last_runs)  # it has just run
        samples, now = processes_at_work._samples, processes_at_work._take_sample(PROC, [server])
        ticks, size = now.work[server]
        samples._period, samples._current = 7, now._replace(at=now.at - 10.0, work={server: (ticks, size - used)})
        monkeypatch.setattr(processes_at_work.time, "sleep", refuse)
        assert processes_at_work._works(PROC, server, 8, processes_at_work.ASKED, alone=True) is works


def refuse(seconds: float) -> None:
    """Instead of time.sleep."""
    raise AssertionError(f"slept for {seconds} s")


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("then", "works"),
    [
        ("time.sleep(99)", False),
        ("while True: pass", True),
        # A slow download: what it has written a second ago is more than it does in a sample.
        ('g = open("part", "wb"); g.write(bytes(9000)); g.flush(); time.sleep(99)', True),
        ('g = open("part", "wb"); g.write(bytes(9000)); g.flush(); os.utime("part", (1, 1)); time.sleep(99)', False),
    ],
)
def test_whether_the_holder_of_a_lock_is_at_work(then: str, works: bool, tmp_path: Path) -> None:
    """Its child does the work."""
    path = tmp_path / "x.lock"
    hold = f"import fcntl, os, sys, time; f = open('{path}', 'a'); fcntl.flock(f, 2); print(1, flush=True); "
    program = hold + f"os.fork() and time.sleep(99); os.chdir('{tmp_path}'); exec({then!r})"
    with child(program, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        with child(f"import fcntl; fcntl.flock(open('{path}', 'a'), 2)") as waiting:
            found = who_replies(waiting.pid, kind="file")
    assert [(one.pid, one.works) for one in found or ()] == [(holder.pid, works)]


@contextmanager
def driver_between() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A process that waits, a driver and a worker. The driver is connected with each of the others."""
    program = "import socket, sys, time; kept = [socket.socket(fileno=int(fd)) for fd in sys.argv[1:]]; time.sleep(99)"
    to_driver, from_rank = socket.socketpair()
    to_worker, from_driver = socket.socketpair()
    with ExitStack() as started:
        waiting, driver, worker = (
            started.enter_context(
                child(program, *(str(end.fileno()) for end in ends), pass_fds=[e.fileno() for e in ends])
            )
            for ends in ((to_driver,), (from_rank, to_worker), (from_driver,))
        )
        for end in (to_driver, from_rank, to_worker, from_driver):
            end.close()
        yield waiting, driver, worker


def set_titles(monkeypatch: pytest.MonkeyPatch, titles: dict[int, str]) -> None:
    """As if these processes had given themselves a title, as Ray's do."""
    table = processes_at_work.read_table(PROC, file_holders.period())
    for pid, title in titles.items():
        table[pid] = table[pid]._replace(argv=(title,))
    monkeypatch.setattr(processes_at_work, "read_table", lambda proc, period: table)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("title", "far"), [("ray::Rollout.generate", True), ("curl", False)])
def test_a_stopped_worker_of_ray_is_seen_behind_the_one_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, title: str, far: bool
) -> None:
    """A client of the driver may be stopped too: nobody waits for it."""
    with driver_between() as (waiting, driver, worker):
        os.kill(worker.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
        set_titles(monkeypatch, {worker.pid: title})
        halted = processes_at_work.stopped(PROC, waiting.pid, frozenset())
        assert [(holder.pid, holder.through) for holder in halted] == ([(worker.pid, driver.pid)] if far else [])
        assert [h.pid for h in processes_at_work.stopped(PROC, driver.pid, frozenset())] == [worker.pid]


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("title", "in_task"), [("ray::Rollout.play", True), ("ray::Rollout", False)])
def test_the_tasks_of_other_workers_of_ray_are_seen_behind_the_driver(
    monkeypatch: pytest.MonkeyPatch, title: str, in_task: bool
) -> None:
    """A rank waits for its next task, while the driver waits for the end of another worker's."""
    with driver_between() as (waiting, _, worker):
        for process in (waiting, worker):
            waits_in(process.pid, "clock_nanosleep")
        set_titles(monkeypatch, {waiting.pid: "ray::Learner", worker.pid: title})
        tasks = ray_tasks.read_tasks(PROC, waiting.pid, frozenset())
        assert [(task.pid, task.title) for task in tasks] == ([(worker.pid, title)] if in_task else [])
        assert all(task.idle_seconds is not None for task in tasks)
        before = ray_tasks.read_tasks(PROC, waiting.pid, frozenset(), until=0.0)  # it has run after that
        assert all(task.idle_seconds == 0.0 for task in before)
        assert ray_tasks.read_tasks(PROC, worker.pid, frozenset({waiting.pid})) == ()


@pytest.mark.parametrize(
    ("parent", "words", "gone"),
    [
        ("python", ("VLLM::EngineCore",), False),
        ("sleep", ("VLLM::EngineCore",), True),
        ("sleep", ("python", "--multiprocessing-fork"), True),
        ("python", ("python", "--multiprocessing-fork"), False),
        ("sleep", ("python", "train.py"), False),
    ],
)
def test_who_has_lost_the_process_that_started_it(parent: str, words: tuple[str, ...], gone: bool) -> None:
    """A title replaces the command line and the name, so a parent is judged by its program too."""
    command = [sys.executable, "-c", "import time; time.sleep(99)"] if parent == "python" else ["sleep", "99"]
    with subprocess.Popen(command) as above:
        try:
            own = process_table.read(PROC)[os.getpid()]
            table = process_table.ProcessTable(
                {
                    above.pid: own._replace(
                        pid=above.pid, argv=("VLLM::APIServer",), stat=own.stat._replace(name="VLLM")
                    ),
                    1 << 22: own._replace(
                        pid=1 << 22, argv=words, stat=own.stat._replace(ppid=above.pid), environment={}
                    ),
                }
            )
            assert process_table.launcher_gone(PROC, table, 1 << 22) is gone
        finally:
            above.kill()


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("import select; select.select([connection], [], [])", True),
        ("server.accept()", True),
        ("time.sleep(99)", True),
        ("import threading; threading.Lock().acquire(); threading.Event().wait()", False),
        ("connection.recv(1)", False),
    ],
)
def test_who_waits_for_the_outside_itself(then: str, expected: bool) -> None:
    with asked(then) as (_, waiting):
        (holder,) = who_replies(waiting) or ()
    assert holder.waits_for_events is expected


def test_who_started_it_by_multiprocessing() -> None:
    """A forked process has the command line of its parent, a spawned one a mark of its own."""
    own = process_table.read(PROC)[os.getpid()]
    lines = {2: ("bash",), 3: ("python", "serve.py"), 4: ("python", "serve.py"), 5: ("VLLM::EngineCore",)}
    table = process_table.ProcessTable(
        {pid: own._replace(pid=pid, argv=argv, stat=own.stat._replace(ppid=pid - 1)) for pid, argv in lines.items()}
    )
    assert list(process_table.starters(table, 5)) == [4, 3]


@pytest.mark.usefixtures("no_cache")
def test_who_shares_memory_with_a_rank_that_sleeps(tmp_path: Path) -> None:
    """A front end that has mapped the same ring, and waits for connections; not a child of the rank."""
    program = """
import mmap, os, socket, sys, time
ring = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
if sys.argv[2] == "rank" and os.fork() == 0:
    time.sleep(99)
print("ready", flush=True)
socket.create_server(("127.0.0.1", 0)).accept() if sys.argv[2] == "front" else time.sleep(99)
"""
    path = tmp_path / "ring"
    path.write_bytes(bytes(4096))
    with (
        child(program, str(path), "front", stdout=subprocess.PIPE) as front,
        child(program, str(path), "rank", stdout=subprocess.PIPE) as waiting,
    ):
        assert front.stdout is not None and front.stdout.readline()
        assert waiting.stdout is not None and waiting.stdout.readline()
        main = KernelThread(
            tid=waiting.pid, name="python3", state="S", cpu_ns=0, voluntary_switches=1, involuntary_switches=0,
            sleep_seconds=50.0,
        )  # fmt: skip
        clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
        holders = awaited_processes.sharing_memory(PROC, waiting.pid, clocks, stack(frame("take", 7)), frozenset())
        below = list(processes_at_work.descendants_of(PROC, waiting.pid))
        os.kill(below[0], signal.SIGKILL)
    assert [(holder.pid, holder.waits_for_events) for holder in holders] == [(front.pid, True)]


def test_the_memory_of_a_card_is_not_shared() -> None:
    """All ranks on a card map its device, and would be taken for processes that one of them gets requests from."""
    maps = b"""200600000-200800000 rw-s 00000000 00:06 143                              /dev/nvidia0
204a00000-204c00000 rw-s 204a00000 00:06 144                             /dev/nvidia-uvm
7f9677200000-7f9677a41000 rw-s 00000000 00:01 9260                       /dev/zero (deleted)
7f9679f5f000-7f967c000000 rw-s 00000000 00:1b 153                        /dev/shm/nccl-HnjmNu (deleted)
7f9689000000-7f9689200000 rw-s 00000000 00:0f 77                         /memfd:ring (deleted)
7f968a000000-7f968a200000 rw-p 00000000 fe:01 78                         /data/private
"""
    assert shared_memory.shared_files(maps) == {(b"00:01", 9260), (b"00:1b", 153), (b"00:0f", 77)}


@pytest.mark.usefixtures("no_cache")
def test_a_manager_waits_for_events() -> None:
    """Its main thread waits for the end of the server, another one accepts connections."""
    program = """
from multiprocessing.managers import BaseManager
class Broker(BaseManager):
    pass
server = Broker(("127.0.0.1", 0), authkey=b"x").get_server()
print("ready", flush=True)
server.serve_forever()
"""
    with child(program, stdout=subprocess.PIPE) as manager:
        assert manager.stdout is not None and manager.stdout.readline()
        until = time.monotonic() + 60
        while not processes_at_work._waits_for_events(PROC, manager.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert processes_at_work._waits_for_events(PROC, manager.pid)


@pytest.mark.usefixtures("no_cache")
def test_which_end_of_a_unix_connection_is_the_server(tmp_path: Path) -> None:
    """Only the end that a server has accepted has its address."""
    path = str(tmp_path / "requests")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        accepted, _ = server.accept()
        with accepted:
            ends = [os.fstat(end.fileno()).st_ino for end in (server, client, accepted)]
            period = file_holders.period()
            assert [peers.is_accepted(PROC, inode, period) for inode in ends] == [False, False, True]
            assert [peers.listens(PROC, inode, period) for inode in ends] == [True, False, False]


@pytest.mark.usefixtures("no_cache")
def test_anybody_may_send_to_a_datagram_socket_with_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control socket: not one that only sends, not one of a pair, and not one that got its address by itself when it sent."""
    with ExitStack() as stack:
        bound, connected, sends, automatic = (
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(4)
        )
        automatic.bind("")
        pair = [stack.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)]
        monkeypatch.chdir(tmp_path)
        bound.bind("control")  # the kernel shows the path as it was given
        connected.bind(str(tmp_path / "replies"))
        connected.connect(str(tmp_path / "control"))
        sockets = (bound, connected, sends, automatic, *pair)
        inodes = [os.fstat(each.fileno()).st_ino for each in sockets]
        listens = [peers.listens(PROC, inode, file_holders.period()) for inode in inodes]
    assert listens == [True, False, False, False, False, False]
