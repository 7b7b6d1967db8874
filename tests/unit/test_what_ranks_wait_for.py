"""Evidence of waits, from real processes: paths and pipes in system calls, storage, listeners, tensors."""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.find.rank_from_memory import rank_from_memory
from hangdoc.observe.kernel import awaited_files, file_holders, system_calls
from hangdoc.observe.kernel.clocks import _read_waiting_place
from hangdoc.observe.kernel.sockets import Sockets
from hangdoc.observe.kernel.storage import Storage
from hangdoc.observe.memory.locate import locate
from hangdoc.observe.memory.memory import Memory
from hangdoc.observe.memory.python_state import Modules, p2p_ops, torch_value
from hangdoc.observe.outside import lock_files, peers
from hangdoc.observe.stacks import pyspy
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import AwaitedFile, Clocks, Connections, FileBytes, RankIdentity, Stack
from tests.unit.builders import frame, rank

pytestmark = pytest.mark.usefixtures("can_attach")
PROC = ProcFS()


@contextmanager
def child(program: str, *arguments: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], start_new_session=True, **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def waits_on(pid: int, kind: str) -> AwaitedFile:
    """The file of this kind that the main thread of a process comes to wait for."""
    bound = time.monotonic() + 10
    while time.monotonic() < bound:
        for file in _read_waiting_place(PROC, pid, pid).files:
            if file.kind == kind:
                return file
        time.sleep(0.02)
    raise AssertionError("it never came to wait there")


def waits_on_threads(pid: int, call: str, count: int) -> None:
    """Until so many threads of a process are in a system call."""
    bound = time.monotonic() + 10
    while time.monotonic() < bound:
        tids = map(int, os.listdir(f"/proc/{pid}/task"))
        if sum(_read_waiting_place(PROC, pid, tid).syscall == call for tid in tids) == count:
            return
        time.sleep(0.02)
    raise AssertionError("they never came to wait there")


def observation(*targets: Target) -> Observation:
    return Observation(
        proc=PROC, deadline=Deadline(60), window=0.1, native="never", targets={t.pid: t for t in targets},
    )  # fmt: skip


def target(pid: int, **more: object) -> Target:
    return Target(pid=pid, ppid=1, role="rank", name="python3", argv=(), state="S", start_ticks=0, **more)  # type: ignore[arg-type]


def test_a_read_of_a_timer_lasts_until_it_expires() -> None:
    """An absolute time of the wall clock (timerfd_settime(2))."""
    program = """
import ctypes, os, time
class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]
libc, times = ctypes.CDLL(None), (Time * 2)(Time(0, 0), Time(int(time.time()) + 600, 0))
timer = libc.timerfd_create(0, 0)
assert libc.timerfd_settime(timer, 1, times, None) == 0
os.read(timer, 8)
"""
    with child(program) as reads:
        assert waits_on(reads.pid, "other").name == "anon_inode:[timerfd]"
        left = _read_waiting_place(PROC, reads.pid, reads.pid).sleep_seconds
    assert left is not None and 580 < left <= 600


def test_the_path_that_an_open_waits_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shard.bin")
    with child("open('shard.bin')", cwd=tmp_path) as process:  # relative: the working directory makes it whole
        assert waits_on(process.pid, "path") == AwaitedFile(kind="path", name=f"{tmp_path}/shard.bin")


def test_who_holds_the_other_end_of_a_pipe() -> None:
    program = "import os; os.write(1, bytes(1 << 20))"
    with child(program, stdout=subprocess.PIPE) as process:
        found = waits_on(process.pid, "pipe")
    assert (found.descriptor, found.writes) == (1, True)
    assert [one.pid for one in found.holders or ()] == [os.getpid()]


def test_who_writes_to_the_standard_input_that_a_thread_reads() -> None:
    """As `zstd` does, whose main thread waits for that one. Of the other pipes of such a thread, no holder is searched."""
    program = """
import os, threading
ours = os.pipe()
for end in (0, ours[0]):
    threading.Thread(target=os.read, args=(end, 1)).start()
threading.Event().wait()
"""
    with child(program, stdin=subprocess.PIPE) as process:
        waits_on_threads(process.pid, "read", 2)
        tids = [tid for tid in map(int, os.listdir(f"/proc/{process.pid}/task")) if tid != process.pid]
        files = [file for tid in tids for file in _read_waiting_place(PROC, process.pid, tid).files]
        found = {file.descriptor == 0: file.holders for file in files}
    assert [one.pid for one in found[True] or ()] == [os.getpid()]
    assert found[False] is None


def test_a_pipe_that_only_its_reader_holds() -> None:
    """A read end of which the same process keeps the write end open: no byte can ever come."""
    with child("import os; r, w = os.pipe(); os.read(r, 1)") as process:
        found = waits_on(process.pid, "pipe")
        assert [one.pid for one in found.holders or ()] == [process.pid]


@pytest.mark.parametrize("call", ["s.recv(1)", "s.settimeout(99); s.recv(1)", "select.select([s], [], [])",
                                  "e = selectors.EpollSelector(); e.register(s, 1); e.select()"])  # fmt: skip
def test_the_socket_that_a_call_waits_for(call: str) -> None:
    program = (
        f"import select, selectors, socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); {call}"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, child(program, str(server.getsockname()[1])) as process:
        found = waits_on(process.pid, "socket")
        probe, look = Sockets(), observation(target(process.pid))
        probe.close(look)
        ((_, _, sockets),) = probe.evidence(look)
    assert isinstance(sockets, Connections)
    assert [c.inode for c in sockets.connections] == [found.inode]


@pytest.mark.parametrize(("asks", "answers"), [(9, 0), (9, 9), (0, 0)])
def test_a_connection_on_which_data_came_and_none_was_sent(asks: int, answers: int) -> None:
    """A server that has accepted a client, which keeps its connection."""
    program = (
        f"import socket; server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1], flush=True); "
        f"s = server.accept()[0]; {asks} and s.recv({asks}); s.sendall(bytes({answers})); print(flush=True); s.recv(1)"
    )
    with child(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as client:
            client.sendall(bytes(asks))
            process.stdout.readline()
            client.recv(answers, socket.MSG_WAITALL)
            probe, look = Sockets(), observation(target(process.pid))
            probe.close(look)
            ((_, _, sockets),) = probe.evidence(look)
    assert isinstance(sockets, Connections)
    assert [each.nothing_sent for each in sockets.connections if each.state == "ESTABLISHED"] == [asks > answers]


def test_a_unix_socket_that_listens(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "requests.sock"))
        server.listen()
        inodes = [os.fstat(end.fileno()).st_ino for end in (server, ours, theirs)]
        period = -1  # another test may have read the sockets in the present one
        assert [peers.listens(PROC, inode, period) for inode in inodes] == [True, False, False]


def test_who_holds_the_lock_on_a_file(tmp_path: Path) -> None:
    program = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX)"
    path = tmp_path / "x.lock"
    with path.open("a") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        with child(program, str(path)) as process:
            found = waits_on(process.pid, "file")
    assert found.name == str(path)
    assert [one.pid for one in found.holders or ()] == [os.getpid()]


def test_who_inherited_a_locked_file(tmp_path: Path) -> None:
    """The process that locked it has ended: /proc/locks shows a pid that does not exist."""
    program = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX)"
    path = tmp_path / "x.lock"
    with path.open("a") as mine:
        locks = f"import fcntl; fcntl.flock({mine.fileno()}, fcntl.LOCK_EX)"
        subprocess.run([sys.executable, "-c", locks], pass_fds=(mine.fileno(),), check=True)
        with child(program, str(path)) as process:
            found = waits_on(process.pid, "file")
    assert [one.pid for one in found.holders or ()] == [os.getpid()]


def test_who_has_a_lock_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No holder is proof only where the processes of all containers are visible."""
    path = tmp_path / "lock"
    path.touch()
    file = file_holders.identity_of(path.stat())
    with path.open("w"):
        assert [one.pid for one in file_holders.openers(PROC, str(path), file, -1) or ()] == [os.getpid()]
    monkeypatch.setattr(ProcFS, "shows_all", lambda _: True)
    assert file_holders.openers(PROC, str(path), file, -2) == ()
    monkeypatch.setattr(ProcFS, "shows_all", lambda _: False)
    assert file_holders.openers(PROC, str(path), file, -3) is None


def test_a_file_that_another_process_has_locked(tmp_path: Path) -> None:
    """SQLite sleeps and tries again, and so does `flock` with LOCK_NB in a loop. No system call names the file."""
    path = tmp_path / "rows.db"
    program = "import sys, time; f = open(sys.argv[1], 'a'); print(1, flush=True); time.sleep(99)"
    with child(program, str(path), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        frames = (frame("rows", 3),)
        asleep = rank(0, *frames, pid=process.pid, kernel={"syscall": "clock_nanosleep"})
        assert isinstance(asleep.stack, Stack) and isinstance(asleep.clocks, Clocks)
        assert (
            lock_files.polled(PROC, process.pid, PROC.stat(str(process.pid)).start_ticks, asleep.stack, asleep.clocks)
            is None
        )
        with path.open("a") as mine:
            fcntl.lockf(mine, fcntl.LOCK_EX)
            found = lock_files.polled(
                PROC, process.pid, PROC.stat(str(process.pid)).start_ticks, asleep.stack, asleep.clocks
            )
    assert found is not None
    assert (found.kind, found.name, [one.pid for one in found.holders or ()]) == ("locked", str(path), [os.getpid()])


def test_a_rank_that_only_uses_rpc_is_found_by_its_variables(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "import sys, time, types; api = types.ModuleType('api'); api._ALL_WORKER_NAMES = {'ps', 'trainer'}\n"
        "sys.modules['torch.distributed.rpc.api'] = api\n"
        "def main(rank): print(1, flush=True); time.sleep(99)\n"
        "main(1)"
    )
    with child(f"import runpy; runpy.run_path({str(script)!r})", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        found, _ = rank_from_memory(PROC, Deadline(60), process.pid, ("main.py",), False)
    assert found is not None
    assert (found.rank, found.world_size) == (1, 2)


def test_a_rank_in_init_rpc_is_found_by_its_arguments() -> None:
    """Before all have met, only the arguments of `init_rpc` say how many ranks there are."""
    program = (
        "import time\n"
        "def init_rpc(name, rank, world_size): print(1, flush=True); time.sleep(99)\n"
        "init_rpc('trainer', 2, 4)"
    )
    with child(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        found, _ = rank_from_memory(PROC, Deadline(60), process.pid, ("main.py",), True)
    assert found is not None
    assert (found.rank, found.world_size) == (2, 4)


def test_a_fifo_is_a_pipe_with_a_path(tmp_path: Path) -> None:
    fifo = tmp_path / "rows"
    os.mkfifo(fifo)
    with child(f"open('{fifo}').read()") as process, fifo.open("w"):
        found = waits_on(process.pid, "pipe")
        assert (found.name, [one.pid for one in found.holders or ()]) == (str(fifo), [os.getpid()])


def test_a_fifo_that_another_process_has_open_for_both_ends(tmp_path: Path) -> None:
    """`exec 3<>rows` keeps a FIFO open, and may write to it."""
    fifo = tmp_path / "rows"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDWR)
    try:
        with child(f"open('{fifo}').read()") as process:
            found = waits_on(process.pid, "pipe")
    finally:
        os.close(descriptor)
    assert [one.pid for one in found.holders or ()] == [os.getpid()]


def test_a_message_queue_is_a_pipe_with_a_path() -> None:
    """Opened for reading and writing by both, as programs do."""
    name = f"/hangdoc-test-{os.getpid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    if queue < 0:
        pytest.skip("this kernel or container has no POSIX message queues")
    try:
        program = (
            f"import ctypes, os; c = ctypes.CDLL(None); q = c.mq_open({name.encode()!r}, os.O_RDWR); "
            "c.mq_receive(q, ctypes.create_string_buffer(1 << 16), 1 << 16, None)"
        )
        with child(program) as process:
            found = waits_on(process.pid, "pipe")
            kernel = _read_waiting_place(PROC, process.pid, process.pid)
            assert (found.name, found.writes, kernel.syscall) == (name, False, "mq_timedreceive")
            assert [one.pid for one in found.holders or () if one.pid != process.pid] == [os.getpid()]
    finally:
        libc.mq_unlink(name.encode())
        os.close(queue)


@pytest.mark.parametrize(
    ("call", "timed", "timeout"),
    [
        ("os.read(os.pipe()[0], 1)", False, None),
        ("time.sleep(99)", True, None),  # a sleep
        ("threading.Event().wait()", False, None),
        ("threading.Event().wait(99)", True, 99),
        ("select.select([os.pipe()[0]], [], [])", False, None),
        ("select.select([os.pipe()[0]], [], [], 99)", True, 99),
        ("select.poll().poll(99_000)", True, 99),
        ("selectors.EpollSelector().select()", False, None),
        ("selectors.EpollSelector().select(99)", True, 99),
        ("subprocess.run(['sleep', '99'])", False, None),
        ("signal.sigwait([signal.SIGUSR1])", False, None),
        ("signal.sigtimedwait([signal.SIGUSR1], 99)", True, 99),
    ],
)
def test_whether_a_wait_has_a_timeout(call: str, timed: bool, timeout: float | None) -> None:
    program = f"import os, select, selectors, signal, subprocess, threading, time; print(1, flush=True); {call}"
    with child(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        bound = time.monotonic() + 10
        while (
            PROC.stat(str(process.pid)).state != "S"
            or not (place := _read_waiting_place(PROC, process.pid, process.pid)).syscall
        ):
            assert time.monotonic() < bound
    assert place.timed is timed
    assert (place.timeout and place.timeout[0]) == (timeout and pytest.approx(timeout, abs=10))


def test_a_mount_is_said_where_it_is_not_local(tmp_path: Path) -> None:
    mounts = tmp_path / "9"
    mounts.mkdir()
    (mounts / "mountinfo").write_text(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 20 0:40 / /data rw - nfs4 server:/export rw\n"
        "31 30 0:41 / /data/my\\040set rw - fuse.sshfs host: rw\n"
    )
    fake = ProcFS(str(tmp_path))
    assert awaited_files.at_path(fake, 9, "/data/x/y").mount == "nfs4 (server:/export)"
    assert awaited_files.at_path(fake, 9, "/data/my set/y").mount == "fuse.sshfs (host:)"
    assert awaited_files.at_path(fake, 9, "/database/y").mount is None


@pytest.mark.parametrize(("machine", "read", "futex"), [("x86_64", 0, 202), ("aarch64", 63, 98)])
def test_system_calls_have_names_on_each_architecture(machine: str, read: int, futex: int) -> None:
    assert (system_calls.name(read, machine), system_calls.name(futex, machine)) == ("read", "futex")
    assert (system_calls.name(-1, machine), system_calls.name(9999, machine)) == ("", "9999")


def test_what_a_process_writes_is_counted(tmp_path: Path) -> None:
    program = (
        "import sys; f = open(sys.argv[1], 'wb', 0); print(flush=True); sys.stdin.readline(); f.write(bytes(3_000_000)); "
        "print(flush=True); sys.stdin.read()"
    )
    # The checkout lies on a disk; /tmp may be memory, which the kernel does not count.
    file = Path(__file__).with_name(f".written-{os.getpid()}")
    try:
        with child(program, str(file), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            process.stdout.readline()
            probe, look = Storage(), observation(target(process.pid))
            probe.open(look)
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            probe.close(look)
            ((_, _, moved),) = probe.evidence(look)
    finally:
        file.unlink(missing_ok=True)
    assert isinstance(moved, FileBytes)
    assert moved.written_bytes >= 3_000_000


def test_who_listens_on_the_master_port() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        child("import sys; sys.stdin.read()", stdin=subprocess.PIPE) as rank,
    ):
        identity = RankIdentity(
            rank=0, source="environment", master_address="127.0.0.1", master_port=server.getsockname()[1]
        )
        probe, look = Sockets(), observation(target(rank.pid, identity=identity))
        probe.close(look)
        ((_, _, found),) = probe.evidence(look)
    assert isinstance(found, Connections)
    assert [(one.port, one.pid) for one in found.listeners] == [(identity.master_port, os.getpid())]


@contextmanager
def variables_of(program: str) -> Iterator[tuple[Memory, dict[str, int]]]:
    """A process that has said something and waits: its memory, and the addresses of its module's variables."""
    with child(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        image = locate(PROC, process.pid)
        with Memory(process.pid, image.layout) as memory:
            yield memory, Modules(memory, image).namespace("__main__")["__main__"]


def test_tensors_and_dtypes_are_read_from_memory() -> None:
    program = (
        "import sys, torch; a = torch.zeros(3, 5, dtype=torch.bfloat16); b = torch.nn.Parameter(torch.zeros(7)); "
        "c = torch.tensor(1.5); d = torch.float16; e = torch.zeros(4, 6).t(); f = 'float32[9]'; "
        "g = torch.zeros(1, 2, 1, 2, 1, 2); h = torch.zeros(8, 3, 8, 8); i = h.expand(8, 3, 8, 8); "
        "j = torch.zeros(1).expand(3, 4); k = torch.zeros(2, 1, 3, 1, 2); m = torch.zeros(0, 3); "
        "print(flush=True); sys.stdin.read()"
    )
    with variables_of(program) as (memory, main):
        found = {name: torch_value(memory, main[name]) for name in "abcdefghijkm"}
    assert found == {
        "a": "bfloat16[3, 5]", "b": "float32[7]", "c": "float32[]", "d": "torch.float16", "e": "float32[6, 4]", "f": None,
        "g": None,  # more dimensions than lie inline: not read rather than guessed
        "h": "float32[8, 3, 8, 8]", "i": "float32[8, 3, 8, 8]", "j": "float32[3, 4]", "k": "float32[2, 1, 3, 1, 2]",
        "m": "float32[0, 3]",
    }  # fmt: skip


def test_the_peers_of_posted_calls_are_read_from_memory() -> None:
    program = (
        "import sys, torch, torch.distributed as dist; "
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1); t = torch.ones(1); "
        "calls = [dist.P2POp(dist.isend, t, 0), dist.P2POp(dist.irecv, t, 0), None]; print(flush=True); sys.stdin.read()"
    )
    with variables_of(program) as (memory, main):
        found = [(call.name, call.text) for call in p2p_ops(memory, "calls", main["calls"])]
    assert found == [("calls[0]", "P2POp(isend, 0)"), ("calls[1]", "P2POp(irecv, 0)")]


def test_how_much_longer_a_sleep_lasts() -> None:
    with child("import time; time.sleep(100)") as process:
        bound = time.monotonic() + 10
        while (
            place := _read_waiting_place(PROC, process.pid, process.pid)
        ).sleep_seconds is None and time.monotonic() < bound:
            time.sleep(0.02)
    assert place.sleep_seconds is not None
    assert 80 < place.sleep_seconds <= 100


def test_a_call_that_a_pause_has_interrupted_keeps_its_name() -> None:
    """py-spy pauses a rank; poll(2) goes on as restart_syscall(2), with the arguments still in the registers."""
    program = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.settimeout(99); s.recv(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, child(program, str(server.getsockname()[1])) as process:
        before = waits_on(process.pid, "socket")
        subprocess.run([str(pyspy.executable()), "dump", "--pid", str(process.pid)], capture_output=True, check=True)
        after = waits_on(process.pid, "socket")
        place = _read_waiting_place(PROC, process.pid, process.pid)
    assert (place.syscall, after) == ("poll", before)
