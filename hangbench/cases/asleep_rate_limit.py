"""Rank 2 of 4 sleeps for an hour in a retry loop against a service that refuses it. The others wait for it in
all_reduce.
"""

# /// hangbench
# ranks = 4
# launch = "mpi"
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "sleeping", "in-collective"]
# operations = ["all_reduce", "all_reduce", "", "all_reduce"]
# finding = "HD202"
# culprits = [2]
# victims = [0, 1, 3]
# ///
import os
import sys
import time

import torch
import torch.distributed as dist


def fetch(me, it):
    if me == 2 and it == 9:
        for attempt in range(1, 8):
            time.sleep(3600 * attempt)
    return torch.ones(4)


rank, world = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=rank, world_size=world)
print("ready", flush=True)
it = 0
while it < 100:
    dist.all_reduce(fetch(rank, it))
    it += 1
