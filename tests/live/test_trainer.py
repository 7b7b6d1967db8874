"""The trainer is a small, honest pretrainer: its loss falls, its ranks agree, and it resumes where it was."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc_trainer import corpus

pytestmark = pytest.mark.live
SMALL = ["--depth", "2", "--aspect-ratio", "32", "--head-dim", "16", "--max-seq-len", "64", "--device-batch-size", "4"]


def train(data: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               "-m", "hangdoc_trainer.base_train", "--", *SMALL, *arguments]  # fmt: skip
    environment = {**os.environ, "NANOCHAT_DATA_DIR": str(data), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step +(\d+)  loss ([\d.]+)", text)}


def test_it_trains_and_resumes(tmp_path: Path) -> None:
    data, checkpoints = tmp_path / "data", tmp_path / "checkpoints"
    corpus.make(data, 6)
    keep = ("--save-every", "40", "--checkpoint-dir", str(checkpoints))
    accumulate = ("--total-batch-size", str(2 * 2 * 4 * 64))
    first = train(data, "--num-iterations", "40", "--eval-every", "20", "--sample-every", "40", *keep, *accumulate)
    found = losses(first)
    assert found[0] > 5
    assert found[39] < 3.9
    assert "weights agree on all 2 ranks" in first
    assert "2 micro-batches per step" in first
    assert "evaluation after 20" in first
    assert "all-reduce" in first
    assert "sample: 'def " in first or 'sample: "def ' in first
    second = losses(train(data, "--num-iterations", "44", "--resume", *keep, *accumulate))
    assert min(second) == 40
    assert second[40] < 4.2
