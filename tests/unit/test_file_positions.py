"""A process that gets on in an open file works, and does not poll."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel.file_positions import find_progress, read_positions
from hangdoc.observe.kernel.storage import Storage
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import AwaitedFile, FileBytes, FileProgress, Holder, Loop, Unavailable
from tests.unit.builders import c10d, frame, helper, rank, snapshot, stack

_READERS = {
    "reads on": "f = open(sys.argv[1], 'rb', buffering=0)\nwhile f.read(512):",
    "opens it again": "while open(sys.argv[1], 'rb', buffering=0).read(512):",
    "begins again": "f = open(sys.argv[1], 'rb', buffering=0)\nwhile f.seek(0) == 0 and f.read(512):",
    "waits for more": "f = open(sys.argv[1], 'rb', buffering=0); f.seek(0, 2)\nwhile not f.read(512):",
    "writes on": "f = open(sys.argv[1] + '.out', 'wb', buffering=0)\nwhile f.write(b'a' * 512):",
    "reads its own log": "p = sys.argv[1] + '.log'; w = open(p, 'wb', buffering=0); f = open(p, 'rb', buffering=0)\n"
    "while w.write(b'a' * 512) and f.read(512):",
    "prints": "while sys.stderr.write('alive\\n'):",
    "reads the kernel's": "f = open('/proc/self/smaps', 'rb', buffering=0)\nwhile f.read(16):",
}


@pytest.mark.parametrize("behaviour", _READERS)
def test_the_files_in_which_a_process_gets_on(behaviour: str, tmp_path: Path) -> None:
    path = tmp_path / "shard.bin"
    path.write_bytes(b"\1" * 512 * 20_000)
    program = f"import sys, time\n{_READERS[behaviour]} print(flush=True); time.sleep(0.01)"
    with (tmp_path / "errors").open("wb") as errors:
        child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=errors)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        before = read_positions(ProcFS(), child.pid)
        for _ in range(20):
            child.stdout.readline()
        progress = list(find_progress(before, read_positions(ProcFS(), child.pid)))
    finally:
        child.kill()
        child.wait()
    assert [(file.path, file.writes) for file in progress] == {
        "reads on": [(str(path), False)],
        "writes on": [(f"{path}.out", True)],
        "reads its own log": [(f"{path}.log", True)],
    }.get(behaviour, [])
    assert all(file.bytes >= 512 * 10 for file in progress)


READS, WRITES = FileProgress(path="/d/a.bin", bytes=65_536), FileProgress(path="/d/b.bin", bytes=64, writes=True)


@pytest.mark.parametrize(("progress", "verdict"), [((), "hung"), ((READS,), "waiting"), ((WRITES,), "hung")])
def test_a_worker_that_reads_on_between_its_sleeps_does_not_poll(
    progress: tuple[FileProgress, ...], verdict: str
) -> None:
    """What it writes may be a log, and each hang has those."""
    loop = Loop(line=8, end_line=8, header="while (b := f.read(65536))")
    torch_file = "/usr/lib/python3/site-packages/torch/utils/data/"
    own = frame("Data.__getitem__", 8, source="while b := f.read(65536): time.sleep(0.05)", loops=(loop,))
    at = stack(own, frame("_worker_loop", 1, torch_file + "_utils/worker.py", library=True))
    clocks = rank(1, pid=7, kernel={"syscall": "clock_nanosleep", "voluntary_switches": 20}).clocks
    files = FileBytes(read_bytes=0, written_bytes=0, progress=progress)
    worker = helper(7, 101, clocks=clocks, stack=at, stack_before=at, files=files)
    waits = frame("_MultiProcessingDataLoaderIter._try_get_data", 1, torch_file + "dataloader.py", library=True)
    (job,) = diagnose(
        snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), rank(1, waits, frame("main", 4)), worker)
    ).jobs
    assert job.verdict == verdict
    if verdict == "waiting":
        assert "a process that it waits for has read 66 kB of /d/a.bin" in job.findings[0].summary


@pytest.mark.parametrize(("progress", "verdict"), [((), "hung"), ((READS,), "waiting"), ((WRITES,), "waiting")])
def test_a_child_that_a_rank_waits_for_works_if_it_gets_on_in_a_file(
    progress: tuple[FileProgress, ...], verdict: str
) -> None:
    clocks = rank(1, pid=7, kernel={"syscall": "clock_nanosleep", "voluntary_switches": 2}).clocks
    files = FileBytes(read_bytes=0, written_bytes=0, progress=progress)
    copies = stack(
        frame("<module>", 3, "/job/copy.py", loops=(Loop(line=3, end_line=3, header="while x := a.read(64)"),))
    )
    child = helper(7, 101, clocks=clocks, stack=copies, stack_before=copies, files=files, name="python3")
    waits = frame("Popen._try_wait", 1, "/usr/lib/python3.11/subprocess.py", library=True)
    ranks = rank(0, *c10d("barrier"), frame("main", 7)), rank(1, waits, frame("main", 6), kernel={"syscall": "wait4"})
    (job,) = diagnose(snapshot(*ranks, child)).jobs
    assert job.verdict == verdict


@pytest.mark.parametrize("counts", [False, True])
def test_only_a_rank_that_makes_no_calls_needs_a_position(counts: bool, tmp_path: Path) -> None:
    path = tmp_path / "shard.bin"
    path.write_bytes(b"\1" * 100_000)
    program = f"import sys, time\n{_READERS['reads on']} print(flush=True); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        proc = ProcFS()
        stat = proc.stat(str(child.pid))
        target = Target(pid=child.pid, ppid=1, role="rank", name="p", argv=(), state="S", start_ticks=stat.start_ticks)
        observation = Observation(
            proc=proc, deadline=Deadline(10), window=0.1, native="never", targets={child.pid: target}
        )
        storage = Storage()
        storage.find_counting = lambda _: {child.pid} if counts else frozenset[int]()
        storage.open(observation)
        for _ in range(5):
            child.stdout.readline()
        storage.close(observation)
        ((_, _, files),) = storage.evidence(observation)
        child.kill()
    assert isinstance(files, FileBytes)
    assert [file.path for file in files.progress] == ([] if counts else [str(path)])


def test_what_helpers_read_brings_no_data_to_a_rank_that_waits_for_a_lock() -> None:
    """A service reads the logs that its own monitor writes, in every hang."""
    files = FileBytes(read_bytes=0, written_bytes=0, progress=(READS,))
    service = helper(7, 101, frame("serve", 3), files=files)
    waits = rank(1, frame("main", 4, source="cv.wait()"), kernel={"syscall": "futex"})
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), waits, service)).jobs
    assert job.verdict == "hung"


def test_a_reader_is_seen_in_each_window_in_which_it_reads(tmp_path: Path) -> None:
    """Also after a window in which it did not; in that, the one before is shown with its age."""
    path = tmp_path / "shard.bin"
    path.write_bytes(b"\1" * 100_000)
    program = (
        "import sys\nf = open(sys.argv[1], 'rb', buffering=0)\nfor line in sys.stdin: f.read(512); print(flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdin is not None

        def read() -> None:
            print(file=child.stdin, flush=True)
            child.stdout.readline()

        read()
        proc = ProcFS()
        started = proc.stat(str(child.pid)).start_ticks
        target = Target(pid=child.pid, ppid=1, role="rank", name="p", argv=(), state="S", start_ticks=started,
                        last_run=0.0)  # fmt: skip
        observation = Observation(
            proc=proc, deadline=Deadline(10), window=0.1, native="never", targets={child.pid: target}
        )
        storage, seen, ago = Storage(), list[int](), list[tuple[bool, bool]]()
        storage.open(observation)
        for reads in (True, False, True, False, False, True):
            if reads:
                read()
            time.sleep(0.06)
            storage.close(observation)
            ((_, _, files),) = storage.evidence(observation)
            assert isinstance(files, FileBytes)
            seen.append(sum(file.bytes for file in files.progress))
            ago.append((files.progress[0].seconds_ago > 0, reads))
            storage.start_next_window(observation)
        child.stdin.close()
    assert seen == [512, 512, 512, 512, 512, 512]
    assert all(earlier is not reads for earlier, reads in ago)


@pytest.mark.parametrize(("reader", "verdict"), [(7, "waiting"), (8, "waiting"), (9, "hung")])
def test_only_what_a_thread_waits_for_brings_its_data(reader: int, verdict: str) -> None:
    """Rank 1 reads from its child 7, which waits for its own child 8. Process 9 is a service that stores logs."""
    files = FileBytes(read_bytes=0, written_bytes=0, progress=(READS,))
    output = AwaitedFile(kind="pipe", name="pipe:[5]", descriptor=5, holders=(Holder(pid=7, name="tool", state="S"),))
    waits = rank(1, frame("main", 4, source="tool.stdout.read()"), kernel={"syscall": "read", "files": (output,)})
    helpers = [
        helper(pid, owner, frame("run", 3), files=files if pid == reader else Unavailable(reason="-"))
        for pid, owner in ((7, 101), (8, 7), (9, 101))
    ]
    helpers = [replace(each, owner=101) for each in helpers]
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), waits, *helpers)).jobs
    assert job.verdict == verdict


@pytest.mark.parametrize(
    ("sleep", "ago", "verdict"), [(2.0, 9.0, "waiting"), (2.0, 15.0, "hung"), (20.0, 35.0, "waiting")]
)
def test_progress_counts_for_two_sleeps(sleep: float, ago: float, verdict: str) -> None:
    clocks = rank(1, pid=7, kernel={"syscall": "clock_nanosleep", "whole_sleep_seconds": sleep}).clocks
    files = FileBytes(read_bytes=0, written_bytes=0, progress=(replace(READS, seconds_ago=ago),))
    output = AwaitedFile(kind="pipe", name="pipe:[5]", descriptor=5, holders=(Holder(pid=7, name="tool", state="S"),))
    waits = rank(1, frame("main", 4, source="tool.stdout.read()"), kernel={"syscall": "read", "files": (output,)})
    tool = helper(7, 101, frame("run", 3), files=files, clocks=clocks)
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), waits, tool, silence=700.0)).jobs
    assert job.verdict == verdict


@pytest.mark.parametrize(
    ("written", "ago", "main", "verdict"),
    [
        (200, 0.0, {"voluntary_switches": 2}, "hung"),
        (65_536, 0.0, {"voluntary_switches": 2}, "waiting"),
        (65_536, 0.0, {"voluntary_switches": 0, "idle_seconds": 60.0}, "hung"),  # a thread of its own writes
        (
            65_536,
            1.0,
            {"voluntary_switches": 0, "idle_seconds": 1.5},
            "waiting",
        ),  # it sleeps for longer than the window
        (65_536, 1.0, {"voluntary_switches": 0, "idle_seconds": 60.0}, "hung"),
    ],
)
def test_a_rank_that_writes_on_between_its_sleeps_copies(
    written: int, ago: float, main: dict[str, float], verdict: str
) -> None:
    """From a source without a position, at a limited rate. A line of a log says that it still waits."""
    loop = Loop(line=8, end_line=9, header="while (chunk := source.read(65536))")
    own = frame("copy", 9, source="target.write(chunk); time.sleep(1.5)", loops=(loop,))
    files = FileBytes(
        read_bytes=0,
        written_bytes=written,
        progress=(FileProgress(path="/d/b.bin", bytes=written, writes=True, seconds_ago=ago),),
    )
    sleeps = {"syscall": "clock_nanosleep", **main}
    copies = rank(1, own, frame("main", 4), kernel=sleeps, files=files)
    (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), frame("main", 7)), copies)).jobs
    assert job.verdict == verdict
