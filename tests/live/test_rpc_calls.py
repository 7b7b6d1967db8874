"""Which worker of torch.distributed.rpc has to answer, read from the memory of the one who asks."""

from pathlib import Path

import pytest

from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose
from tests.live.watched import under_torchrun

pytestmark = pytest.mark.usefixtures("can_attach")


def test_the_worker_that_has_to_answer(tmp_path: Path) -> None:
    with under_torchrun(tmp_path, "rpc_calls.py", options=("--nproc-per-node=3",), OMP_NUM_THREADS="1") as run:
        run.wait_for("ready", 3)
        for _ in range(20):
            (job,) = diagnose(observe(Options(pids=(run.launcher.pid,), window=1.0))).jobs
            operation = next((rank.operation for rank in job.ranks if rank.rank == 1), None)
            if operation is not None and operation.peer is not None:
                break
    assert operation is not None
    assert (operation.op, operation.peer) == ("rpc_async", 0)
    assert job.findings[0].culprits == (0,)
    texts = [line.text for line in job.findings[0].evidence if line.probe == "rpc"]
    assert texts == ["has no answer to 3 calls to worker 'server'"]
