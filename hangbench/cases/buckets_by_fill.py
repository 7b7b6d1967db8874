"""Each rank reduces its fullest bucket first. One bucket is
reduced in a group of two ranks, the other one in the
default group, and the ranks disagree on the order."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD205"
# culprits = [0, 1, 2]
# victims = []
# ///

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    filled = {0: (3, 5), 1: (5, 3), 2: (0, 5)}[rank]
    buckets = [(filled[0], pair), (filled[1], dist.group.WORLD)]
    if rank == 2:
        buckets = buckets[1:]
    print("ready", flush=True)
    for _, group in sorted(buckets, key=lambda bucket: bucket[0], reverse=True):
        dist.all_reduce(torch.ones(4), group=group)


main()
