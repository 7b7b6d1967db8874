"""Minimal torch.distributed ranks, each a process of its own. Run as a program:

python bench/many_ranks.py RANKS healthy|frozen FOLDER PORT: prints "ready" when all ranks have reached their final state. In a
frozen run, rank 1 calls a barrier while the others call an all-reduce. In a healthy run, each step is a little work, a small
all-reduce and a pause. The pause is longer in a larger run, so that 64 ranks leave most of two cores idle.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

STEPS = 10
_PAUSE_SECONDS = 0.01
"""For each rank of the run, in each step."""
STARTING = 4
"""How many ranks import torch at the same time."""


def rank(number: int, ranks: int, frozen: bool, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    (folder / f"{number}.started").touch()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=ranks)
    step = 0
    tensor = torch.ones(64)
    while True:
        if step == STEPS:
            (folder / f"{number}.ready").touch()
        if frozen and number == 1 and step == STEPS:
            dist.barrier()
        dist.all_reduce(tensor)
        tensor = torch.ones(64) + torch.rand(100, 100).sum() * 0
        time.sleep(_PAUSE_SECONDS * ranks)
        step += 1


def main() -> None:
    ranks, state, folder, port = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    children = []
    for number in range(ranks):
        while number - len(list(folder.glob("*.started"))) >= STARTING:
            time.sleep(0.05)
        children.append(
            subprocess.Popen(
                [sys.executable, __file__, str(ranks), state, str(folder), port, str(number)],
                env={
                    **os.environ,
                    "RANK": str(number),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_RANK": str(number),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                },
            )
        )
    while len(list(folder.glob("*.ready"))) < ranks:
        time.sleep(0.1)
    print("ready", flush=True)
    for child in children:
        child.wait()


if __name__ == "__main__":
    if len(sys.argv) > 5:
        rank(int(sys.argv[5]), int(sys.argv[1]), sys.argv[2] == "frozen", Path(sys.argv[3]))
    main()
