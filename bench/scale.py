"""Measures large runs: merge, diagnosis and text report of 10,000, 30,000 and 100,000 ranks, each in a separate process on one
core, and 1,000 hosts through ClusterShell's local worker.

No two ranks are equal. As on real hosts they differ in their numbers, pids, threads and variables, in the time that each thread
ran and how often it was woken. They also differ in the addresses of their objects, in their counters, ports and inodes, and in
how long each connection has been silent. They agree in what real ranks agree in: the frames, the options of the launch line, the
versions. Each host has its torchrun.
"""

import gc
import io
import json
import os
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.headless_top import be_top, headless_top
from hangdoc import bundle_text, codec
from hangdoc.commands.looking import Looks
from hangdoc.fleet.gather import MOST_WHOLE, gather
from hangdoc.fleet.transport import Transport
from hangdoc.observe.look.observe import Options
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.summary import summarized
from hangdoc.snapshot import (
    Clocks,
    Connection,
    Connections,
    Counter,
    Frame,
    Group,
    Host,
    Interpreter,
    Launch,
    Process,
    Progress,
    Runtime,
    Snapshot,
    merge,
)
from hangdoc.version import __version__
from hangdoc_tui.app import BUDGET_OF_HOSTS
from tests.unit.builders import backward, c10d, frame, local, rank, snapshot, train

_PER_HOST = 8
_NONCE = "bench"
WITH_NONCE = f"import secrets; secrets.token_hex = lambda size: '{_NONCE}'; from hangdoc.cli.main import main; main()"
"""hangdoc, whose requests have the nonce of the recorded bundles."""
_AT_ONCE = 64
"""Hosts of which one snapshot is made."""
SIZES = (10_000, 30_000, 100_000)


def _process(number: int, world: int, culprit: int) -> Process:
    one = random.Random(number)  # noqa: S311  the same ranks each time
    pid = 20_000 + one.randrange(1000) * _PER_HOST + number % _PER_HOST
    at = 0x7F0000000000 + one.randrange(1 << 36) * 16
    step = 41 - (number == culprit)
    variables = (
        local("step", step, address=at), local("loader", f"<DataLoader at {at + 512:#x}>", address=at + 512, length=410),
        local("model", f"<DistributedDataParallel at {at + 1024:#x}>", address=at + 1024),
        local("loss", f"{one.random():.4f}", address=at + 2048),
    )  # fmt: skip
    frames: tuple[Frame, ...]
    if number == culprit:
        frames = (
            frame(
                "read_table",
                9,
                "/home/me/data.py",
                source="table = read(path)",
                locals=(local("path", f"/d/{number}"),),
            ),
            train(12, locals=variables),
        )
    else:
        group = local("group", f"<ProcessGroup at {at + 4096:#x}>", address=at + 4096)
        frames = (*c10d("all_reduce", group), *backward(), train(15, locals=variables))
    process = rank(
        number, *frames, world=world, local_world=_PER_HOST, pid=pid,
        environment={"RANK": str(number), "LOCAL_RANK": str(number % _PER_HOST), "WORLD_SIZE": str(world),
                     "GROUP_RANK": str(number // _PER_HOST), "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
                     "OMP_NUM_THREADS": "8", "TORCHELASTIC_RUN_ID": "none"},
        interpreter=Interpreter(
            environment={}, globals=(local("step", step, address=at),),
            groups=(Group(address=at + 4096, name="0", ranks=(), default=True, backend="cpu:gloo"),),
        ),
        progress=Progress(counters=(
            Counter(name="step", function="train", file="/home/me/train.py", before=step, after=step, looped=True),
        )),
        runtime=Runtime(python="3.11.7", executable="/usr/bin/python3", torch="2.13.0"),
        started_seconds_ago=round(500 + one.random() * 5, 2),
    )  # fmt: skip
    assert isinstance(process.clocks, Clocks)  # noqa: S101
    threads = tuple(
        msgspec.structs.replace(
            thread, tid=pid + at_, cpu_ns=one.randrange(9_000_000), voluntary_switches=one.randrange(9)
        )
        for at_, thread in enumerate(process.clocks.threads)
    )
    return msgspec.structs.replace(process, clocks=msgspec.structs.replace(process.clocks, threads=threads))


def _launcher(node: int, nodes: int) -> Process:
    asked = Launch(
        tool="torchrun", nnodes=str(nodes), nproc_per_node=str(_PER_HOST), node_rank=node, endpoint="10.0.0.1:29500",
        run_id="none",
    )  # fmt: skip
    return Process(
        pid=50, ppid=40, role="launcher", name="pt_elastic", argv=("torchrun", f"--node-rank={node}", "train.py"), state="S",
        started_seconds_ago=510.0, launch=asked, whole_tree=True,
    )  # fmt: skip


def _address(host: int) -> str:
    return f"10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}"


def bundles(world: int, *, whole: bool) -> list[bytes]:
    """One bundle per host of eight ranks, with all evidence or a summary. Rank 517 reads its data, all others are in their
    backward."""
    count = world // _PER_HOST
    encoded = []
    for first in range(0, count, _AT_ONCE):
        evidence = Snapshot(
            hangdoc="bench", hosts=tuple(_host(at, world) for at in range(first, min(first + _AT_ONCE, count)))
        )
        # A host alone would list all absent ranks of the run, which takes it 50 ms, and this process ten minutes for all hosts.
        written = evidence if whole else summarized(evidence)
        encoded += [codec.encode(msgspec.structs.replace(written, hosts=(host,)), _NONCE) for host in written.hosts]
    return encoded


def _host(at: int, world: int) -> Host:
    hosts = world // _PER_HOST
    ranks = [_process(at * _PER_HOST + n, world, 517) for n in range(_PER_HOST)]
    connections = [
        Connection(
            pid=process.pid, namespace="net:[1]", state="ESTABLISHED", local_address=_address(at),
            local_port=(40_000 if side else 50_000) + n, remote_address=_address((at + (1 if side else -1)) % hosts),
            remote_port=(50_000 if side else 40_000) + n, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
            last_sent_ms=240_000 + (silent := (at * 37 + n) % 900), last_received_ms=240_000 + silent // 2,
            inode=at * 100 + n * 2 + side, rtt_us=80 + silent % 40,
        )
        for n, process in enumerate(ranks)
        for side in (0, 1)
    ]  # fmt: skip
    observed = snapshot(
        _launcher(at, hosts), *ranks, silence=None, connections=Connections(connections=tuple(connections))
    )
    return msgspec.structs.replace(observed.hosts[0], name=f"node{at:05}", machine_id=f"m{at}")


def _measured(world: int, *, whole: bool) -> None:
    """Print seconds for decoding, seconds for the rest, and the peak memory in MiB. Runs in a separate process on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gc.disable()  # as `hangdoc diagnose` does
    raw = bundles(world, whole=whole)
    from rich.console import Console

    from hangdoc.render.text import report

    began = time.perf_counter()
    snapshots = tuple(codec.decode(one) for one in raw)
    decoded = time.perf_counter()
    diagnosis = diagnose(merge(snapshots), patience=2.0)
    text = io.StringIO()
    report(diagnosis, Console(file=text, width=100))
    ended = time.perf_counter()
    (job,) = diagnosis.jobs
    assert (job.findings[0].code, job.findings[0].culprits) == ("HD202", (517,)), job.findings[:1]  # noqa: S101
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(decoded - began, ended - decoded, most, len(text.getvalue().splitlines()))


def hosts(number: int = 1000) -> None:
    """Measure so many hosts, each a local process that prints a recorded bundle, at several fan-outs. And `top` of 128."""
    with _recorded(number) as via:
        for fanout in (16, 64, 256):
            began = time.perf_counter()
            done = subprocess.run(
                ["/usr/bin/env", "time", "-f", "%M", sys.executable, "-c", WITH_NONCE, "diagnose",
                 "--hosts", f"h[0-{number - 1}]", "--via", via, "--remote-command", "/dev/null",
                 "--fanout", str(fanout), "--timeout", "120", "--json"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            answer = json.loads(done.stdout)
            seen = len(answer["jobs"][0]["ranks"])
            print(
                f"{number:,} hosts at a fan-out of {fanout}: {time.perf_counter() - began:.1f} s, "
                f"{int(done.stderr.splitlines()[-1]) / 1024:.0f} MiB, {seen:,} ranks, {len(answer['problems'])} problems"
            )
    top_of_hosts()


def top_of_hosts(number: int = 128, length: float = 60.0) -> None:
    """Measure how often `top` polls so many hosts of eight ranks each."""
    with _recorded(number) as via, headless_top("-m", "bench.scale", "--top", str(number), via) as top:
        rate, _, share = top.measure(length)
    print(f"top of {number} hosts, {number * _PER_HOST:,} ranks: {rate:.2f} polls/s at {share:.1%} of a core")


@contextmanager
def _recorded(number: int) -> Iterator[str]:
    """The command for `--via` that prints the recorded bundle of a host."""
    with tempfile.TemporaryDirectory() as folder:
        for at, raw in enumerate(bundles(number * _PER_HOST, whole=number <= MOST_WHOLE)):
            lines = (bundle_text.begin(__version__, time.time()), *bundle_text.lines(raw))
            (Path(folder) / f"h{at}").write_text("\n".join(lines) + "\n")
        yield f"cat {folder}/{{host}} --"


def _be_top(number: int, via: str, times: Path) -> None:
    secrets.token_hex = lambda size: _NONCE  # type: ignore[assignment,misc]
    transport = Transport(via=tuple(via.split()), remote_command=("/dev/null",))
    names = tuple(f"h{at}" for at in range(number))
    be_top(Looks(lambda: gather(names, Options(), transport)), times, budget=BUDGET_OF_HOSTS)


def ranks() -> None:
    """Measure the three sizes in one run, with the summaries that so many hosts send, and then with all evidence."""
    for world, evidence in ((world, evidence) for evidence in ("summary", "whole") for world in SIZES):
        done = subprocess.run(
            [sys.executable, "-m", "bench.scale", str(world), evidence], capture_output=True, text=True, check=True
        )
        decoding, rest, most, lines = map(float, done.stdout.split())
        print(
            f"{evidence}: {world:>7,} ranks on {world // _PER_HOST:,} hosts: merge, diagnose and text report {rest:.2f} s "
            f"({rest / world * 1e6:.0f} us per rank), decoding before it {decoding:.2f} s, peak {most:.0f} MiB, "
            f"{lines:.0f} lines; aim for 100,000: 3 s, 1,024 MiB"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--top":
        _be_top(int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    else:
        _measured(int(sys.argv[1]), whole=sys.argv[2] == "whole")
