"""Rank 1 ends by os._exit in the middle of training. Rank 0 swallows the broken
connection and waits in the store for rank 1's report. No launcher exists to end
it."""

# /// hangbench
# launch = "environment"
# verdict = ["hung"]
# states = ["in-store", "zombie"]
# finding = "HD301"
# culprits = [1]
# victims = [0]
# ///
import os

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    print("ready", flush=True)
    for step in range(1000):
        if me == 1 and step == 20:
            os._exit(1)
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError:
            store.get(f"report-{step}")


main()
