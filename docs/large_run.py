"""Writes docs/reports/large.hangdoc: constructed evidence of 64 ranks on 8 hosts, in which one rank is stuck in a read from NFS.

python -m docs.large_run
"""

from typing import Any

from msgspec.structs import replace

from docs.reports import FOLDER
from hangdoc import codec
from hangdoc.snapshot import AwaitedFile, Connection, Connections, Counter, Launch, Process, Progress, Snapshot, merge
from hangdoc.version import __version__
from tests.unit.builders import LOOP, backward, frame, local, native_backward, rank, snapshot

HOSTS, PER_HOST = 8, 8
WORLD = HOSTS * PER_HOST
STUCK = 37
STEP = 4180
SILENT_SECONDS = 754.0
_SCRIPT, _DATA = "/app/train.py", "/app/data.py"
_NFS = AwaitedFile(kind="file", name="/data/train-00421.parquet", descriptor=19, mount="nfs4 (nas2:/export/data)")


def _rank(number: int) -> Process:
    more: dict[str, Any]
    loop = replace(LOOP, line=88, end_line=103, header="for step, batch in enumerate(batches)")
    done = STEP - (number == STUCK)  # it reads the next batch
    step = local("step", done)
    counter = Counter(name="step", function="train", file=_SCRIPT, before=done, after=done, looped=True)
    if number == STUCK:
        kernel = {"syscall": "pread64", "wchan": "rpc_wait_bit_killable", "files": (_NFS,), "state": "D"}
        frames = (
            frame("read_row_group", 58, _DATA, source="table = source.read_row_group(index)"),
            frame("batches", 71, _DATA, source="yield from split(read_row_group(source, index))"),
            frame("train", 88, _SCRIPT, loops=(loop,), locals=(step,), source=f"{loop.header}:"),
        )
        more = {"kernel": kernel, "state": "D"}
    else:
        frames = (*backward(), frame("train", 95, _SCRIPT, loops=(loop,), locals=(step,), source="loss.backward()"))
        more = {"native": native_backward()}
    process = rank(
        number, *frames, world=WORLD, local_world=PER_HOST, pid=_pid(number), progress=Progress(counters=(counter,)),
        argv=("python3", _SCRIPT), started_seconds_ago=8120.0, **more,
    )  # fmt: skip
    assert process.identity is not None  # noqa: S101
    return replace(process, identity=replace(process.identity, local_rank=number % PER_HOST))


def _pid(number: int) -> int:
    return 41_200 + number // PER_HOST * 17 + number % PER_HOST


def _neighbour(number: int, other: int) -> Connection:
    """One end of a connection in the ring of all ranks."""
    ms = int(SILENT_SECONDS * 1000)
    return Connection(
        pid=_pid(number), namespace="net:[1]", state="ESTABLISHED", receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
        local_address=f"10.0.0.{number // PER_HOST}", local_port=40_000 + number * 100 + other,
        remote_address=f"10.0.0.{other // PER_HOST}", remote_port=40_000 + other * 100 + number,
        last_sent_ms=ms, last_received_ms=ms,
    )  # fmt: skip


def _host(host: int) -> Snapshot:
    numbers = range(host * PER_HOST, (host + 1) * PER_HOST)
    launch = Launch(
        tool="torchrun", nnodes=str(HOSTS), nproc_per_node=str(PER_HOST), node_rank=host, endpoint="10.0.0.0:29500",
        run_id="none",
    )  # fmt: skip
    launcher = Process(
        pid=50, ppid=40, role="launcher", name="pt_elastic", argv=("torchrun", _SCRIPT), state="S", started_seconds_ago=8124.0,
        launch=launch, whole_tree=True,
    )  # fmt: skip
    ends = tuple(_neighbour(n, (n + by) % WORLD) for n in numbers for by in (-1, 1))
    one = snapshot(launcher, *map(_rank, numbers), silence=None, connections=Connections(connections=ends))
    named = replace(
        one.hosts[0], name=f"node{host}", machine_id=f"machine {host}", taken_at="2026-11-22T03:12:41+00:00"
    )
    return Snapshot(hangdoc=__version__, hosts=(named,))


if __name__ == "__main__":
    codec.write(merge(tuple(map(_host, range(HOSTS)))), FOLDER / "large.hangdoc")
