"""Minimal torch.distributed ranks, forked from one process that has imported torch. Run as a program:

python bench/many_ranks.py RANKS healthy|frozen FOLDER PORT: prints "ready" when all ranks have reached their final state. In a
frozen run, rank 1 calls a barrier while the others call an all-reduce. In a healthy run, each step is a little work and a small
all-reduce.
"""

import os
import sys
import time
from pathlib import Path

STEPS = 10


def rank(number: int, ranks: int, frozen: bool, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(number), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": sys.argv[4]}  # fmt: skip
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
        time.sleep(0.02)
        step += 1


def main() -> None:
    ranks, frozen, folder = int(sys.argv[1]), sys.argv[2] == "frozen", Path(sys.argv[3])
    import torch.distributed  # noqa: F401  before the fork, so that the ranks share its pages

    children = []
    for number in range(ranks):
        child = os.fork()
        if child == 0:
            try:
                rank(number, ranks, frozen, folder)
            finally:
                os._exit(1)
        children.append(child)
    while len(list(folder.glob("*.ready"))) < ranks:
        time.sleep(0.1)
    print("ready", flush=True)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
