"""Two ranks, each with a worker process that wakes all the time. Rank 1 calls a barrier while rank 0 calls an all-reduce, or
(`waits`) both wait for what their worker never sends."""

import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist


def wake(rank):
    while os.getppid() == rank:
        time.sleep(0.02)


ours, theirs = multiprocessing.Pipe()
multiprocessing.Process(target=wake, args=(os.getpid(),), daemon=True).start()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(8))
if sys.argv[1:] == ["waits"]:
    ours.recv()
elif dist.get_rank():
    dist.barrier()
else:
    dist.all_reduce(torch.ones(8))
