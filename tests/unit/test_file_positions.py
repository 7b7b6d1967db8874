"""A process that reads a file further between its sleeps works, and does not poll."""

import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc.observe.kernel import system_calls
from hangdoc.observe.outside import file_positions
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Clocks, FileRead, KernelThread, Loop
from tests.unit.builders import c10d, frame, helper, rank, snapshot, stack

_READERS = {
    "reads on": "f = open(sys.argv[1], 'rb', buffering=0)\nwhile f.read(512):",
    "opens it again": "while open(sys.argv[1], 'rb', buffering=0).read(512):",
    "begins again": "f = open(sys.argv[1], 'rb', buffering=0)\nwhile f.seek(0) == 0 and f.read(512):",
    "waits for more": "f = open(sys.argv[1], 'rb', buffering=0); f.seek(0, 2)\nwhile not f.read(512):",
    "writes a log": "f = open(sys.argv[1] + '.log', 'wb', buffering=0)\nwhile f.write(b'alive'):",
    "reads the kernel's": "f = open('/proc/self/smaps', 'rb', buffering=0)\nwhile f.read(16):",
}


@pytest.mark.parametrize("behaviour", _READERS)
def test_the_file_that_a_sleeping_process_reads_on(behaviour: str, tmp_path: Path) -> None:
    path = tmp_path / "shard.bin"
    path.write_bytes(b"\1" * 512 * 20_000)
    program = f"import sys, time\n{_READERS[behaviour]} print(flush=True); time.sleep(0.02)"
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        main = KernelThread(
            tid=child.pid, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0,
            syscall=min(system_calls.SLEEPS),
        )  # fmt: skip
        clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
        started = ProcFS().stat(str(child.pid)).start_ticks
        read = file_positions.find_read_file(ProcFS(), child.pid, started, clocks)
    finally:
        child.kill()
        child.wait()
    if behaviour == "reads on":
        assert read is not None
        assert read.path == str(path)
        assert read.bytes % 512 == 0
        assert read.seconds >= 0.5
    else:
        assert read is None


@pytest.mark.parametrize(
    ("read", "verdict"), [(None, "hung"), (FileRead(path="/d/a.bin", bytes=65536, seconds=0.5), "waiting")]
)
def test_a_worker_that_reads_on_between_its_sleeps_does_not_poll(read: FileRead | None, verdict: str) -> None:
    loop = Loop(line=8, end_line=8, header="while (b := f.read(65536))")
    torch_file = "/usr/lib/python3/site-packages/torch/utils/data/"
    own = frame("Data.__getitem__", 8, source="while b := f.read(65536): time.sleep(0.05)", loops=(loop,))
    at = stack(own, frame("_worker_loop", 1, torch_file + "_utils/worker.py", library=True))
    clocks = rank(1, pid=7, kernel={"syscall": "clock_nanosleep", "voluntary_switches": 20}).clocks
    worker = helper(7, 101, clocks=clocks, stack=at, stack_before=at, read_file=read)
    waits = frame("_MultiProcessingDataLoaderIter._try_get_data", 1, torch_file + "dataloader.py", library=True)
    (job,) = diagnose(
        snapshot(rank(0, *c10d("all_reduce"), frame("main", 5)), rank(1, waits, frame("main", 4)), worker)
    ).jobs
    assert job.verdict == verdict
    if read is not None:
        assert "it read 66 kB of /d/a.bin in 0.5 s" in job.findings[0].summary
