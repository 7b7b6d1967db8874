"""torch.multiprocessing.spawn starts three ranks, and no environment contains a
rank. Rank 2 stops itself with SIGSTOP in batch 5; the others wait for it in
all_reduce."""

# /// hangbench
# ranks = 3
# launch = "itself"
# verdict = ["hung"]
# states = ["in-collective","in-collective","stopped"]
# operations = ["all_reduce","all_reduce",""]
# finding = "HD302"
# culprits = [2]
# victims = [0,1]
# ///

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(index, world, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=world)
    print("ready", flush=True)
    for batch in range(100):
        if index == 2 and batch == 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    mp.spawn(worker, args=(3, int(sys.argv[1])), nprocs=3)
