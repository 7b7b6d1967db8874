"""Each rank meets the others in a file, but the path
depends on the local rank: every rank waits in a file of
its own."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD406"
# culprits = [1]
# victims = [0]
# ///

import os
import tempfile

import torch
import torch.distributed as dist


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    work_dir = os.path.join(tempfile.gettempdir(), f"job-{os.getppid()}", f"worker{rank}")
    os.makedirs(work_dir, exist_ok=True)
    print("ready", flush=True)
    dist.init_process_group("gloo", init_method=f"file://{work_dir}/rendezvous", rank=rank, world_size=world)
    dist.all_reduce(torch.ones(1))


main()
