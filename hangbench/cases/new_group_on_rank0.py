"""Rank 0 alone creates a new group, which all ranks of the run
must create together. Rank 1 continued and waits in
all_reduce."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# culprits = [0]
# victims = [1]
# finding = "HD203"
# ///

import torch
import torch.distributed as dist


def setup():
    if dist.get_rank() == 0:
        dist.new_group([0, 1])


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    setup()
    for n in range(10):
        dist.all_reduce(torch.ones(1))


main()
