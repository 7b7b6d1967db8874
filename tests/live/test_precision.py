"""HD504 on real runs: only what a rank computes in, never what a variable names."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Machine
from hangdoc_trainer.offspring import free_port
from tests.live.watched import PROGRAMS, running

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_LOOKS = 6


def test_a_type_in_use_is_reported_and_one_that_is_only_named_is_not(tmp_path: Path) -> None:
    """Four runs of one rank each, started with plain variables, seen as if on a processor without instructions for 16 bit."""
    reported = set()
    with ExitStack() as stack:
        runs = {}
        for way in ("parameters", "inline", "autocast", "named"):
            variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            command = (sys.executable, str(PROGRAMS / "dtypes.py"), way)
            runs[way] = stack.enter_context(running(tmp_path / way, *command, **variables))
        for run in runs.values():
            run.wait_for("begins", seconds=200)
        ways = {run.launcher.pid: way for way, run in runs.items()}
        for _ in range(_LOOKS):
            snapshot = observe(Options(pids=tuple(ways), window=0.5, stacks=True))
            (host,) = snapshot.hosts
            assert isinstance(host.machine, Machine)
            plain = replace(host, machine=replace(host.machine, cpu_flags=("avx2",)))
            jobs = diagnose(replace(snapshot, hosts=(plain,))).jobs
            assert len(jobs) == len(runs)
            for job in jobs:
                (rank,) = job.ranks
                assert (job.verdict, rank.label) == ("healthy", "computing")
                for finding in (one for one in job.findings if one.code == "HD504"):
                    assert "rank 0 trains in bfloat16 on a CPU" in finding.summary
                    reported.add(ways[rank.pid or 0])
    assert reported == {"parameters", "inline", "autocast"}
