"""HD504 on real runs: only what a rank computes in, never what a variable names."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import Finding
from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Machine
from tests.live.watched import PROGRAMS, running

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]


def findings(way: str, folder: Path, looks: int) -> list[Finding]:
    """HD504 of some looks at the program, as if on a processor without any instructions for 16 bit."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--standalone"]
    found = []
    with running(folder, *torchrun, str(PROGRAMS / "dtypes.py"), way) as run:
        run.wait_for("begins", seconds=120)
        for _ in range(looks):
            snapshot = observe(Options(pids=(run.launcher.pid,), window=0.5))
            (host,) = snapshot.hosts
            assert isinstance(host.machine, Machine)
            plain = replace(host, machine=replace(host.machine, cpu_flags=("avx2",)))
            (job,) = diagnose(replace(snapshot, hosts=(plain,))).jobs
            assert (job.verdict, job.ranks[0].label) == ("healthy", "computing")
            found += [finding for finding in job.findings if finding.code == "HD504"]
    return found


@pytest.mark.parametrize("way", ["parameters", "inline", "autocast"])
def test_a_type_in_use_is_told(way: str, tmp_path: Path) -> None:
    found = findings(way, tmp_path, 6)
    assert found
    assert all("rank 0 trains in bfloat16 on a CPU" in finding.summary for finding in found)


def test_a_type_that_is_only_named_is_not(tmp_path: Path) -> None:
    assert not findings("named", tmp_path, 6)
