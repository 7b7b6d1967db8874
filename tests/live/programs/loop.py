"""Ranks that all-reduce for ever. The first argument is how many numbers."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
numbers = torch.ones(int(sys.argv[1]) if sys.argv[1:] else 1000)
print("begins", flush=True)
for _ in range(1_000_000):
    dist.all_reduce(numbers)
    time.sleep(0.02)
