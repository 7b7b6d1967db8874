"""Ranks that all-reduce 60 times; with a file's name, the last rank waits at the 20th for that file to appear."""

import pathlib
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
for step in range(60):
    if step == 20:
        print("under way", flush=True)
    while step == 20 and last and sys.argv[1:] and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.1)
    time.sleep(0.05)
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
print("done", flush=True)
