"""HD504: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Snapshot
from tests.rules.shapes import machine
from tests.unit.builders import local, rank, snapshot, train


def fires() -> Snapshot:
    return snapshot(
        rank(0, train(12, locals=(local("model.parameters()", "bfloat16[65792]"),)), cpu=0.9, world=1),
        machine=machine(cpu_flags=("avx2",)),
    )


def quiet() -> Snapshot:
    """Named and not used: nanoGPT on a CPU."""
    return snapshot(
        rank(
            0,
            train(
                12, locals=(local("dtype", "'float16'"), local("ptdtype", "torch.float16"), local("x", "float16[4]"))
            ),
            cpu=0.9,
            world=1,
            argv=("python", "train.py", "--dtype=float16", "--bf16"),
            environment={"ACCELERATE_MIXED_PRECISION": "bf16"},
        ),
        machine=machine(cpu_flags=("avx2",)),
    )
