"""A helper function tells whether this is the main process, and if so, rank 0 broadcasts
its state for the log. Rank 1 continued with the next batch and waits in DDP's
all-reduce."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# culprits = [0]
# victims = [1]
# finding = "HD203"
# states = ["in-collective", "in-collective"]
# operations = ["broadcast_object_list", "all_reduce"]
# ///

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def is_main():
    return dist.get_rank() == 0


def run():
    model = DDP(torch.nn.Linear(4, 4))
    it = iter(range(1000))
    for batch in it:
        model(torch.randn(2, 4)).sum().backward()
        if batch == 4:
            print("ready", flush=True)  # the first step may take seconds on a busy machine
        if batch == 5 and is_main():
            dist.broadcast_object_list([{"step": batch}], src=0)
            dist.barrier()


dist.init_process_group("gloo")
run()
