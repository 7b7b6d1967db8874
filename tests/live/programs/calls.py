"""Four ranks that make calls.

`calls.py skips`: rank 1 skips a gradient in step 40, and is a call ahead at the end, after step 70.
`calls.py roles`: rank 1 logs at a line of its own, and leaves before the last reduction.
`calls.py late`: rank 2 is 50 ms late in each step, without end.
"""

import sys
import time

import torch
import torch.distributed as dist

STEPS, SKIPPED = 70, 40


def sync_grads(gradients, skipped):
    for gradient in gradients[skipped:]:
        dist.all_reduce(gradient)


def log_stats(mode, rank):
    if mode == "roles" and rank == 1:
        dist.all_reduce(torch.ones(64))
    else:
        dist.all_reduce(torch.ones(64))


def train(mode: str) -> None:
    rank = dist.get_rank()
    gradients = [torch.ones(64) for _ in range(4)]
    step = 0
    while mode == "late" or step < STEPS:
        if mode == "late" and rank == 2:
            time.sleep(0.05)
        sync_grads(gradients, mode == "skips" and (rank, step) == (1, SKIPPED))
        if mode == "roles" and (rank, step) == (1, STEPS - 1):
            break
        if step == STEPS - 1:
            print("ready", flush=True)
        log_stats(mode, rank)
        step += 1
    print("ready", flush=True)
    dist.broadcast(torch.ones(3), 0)


dist.init_process_group("gloo")
train(sys.argv[1])
