"""Ranks that all-reduce 60 times. With a file's name, the last rank waits at the 20th time for that file to appear, and then the
ranks go on until it is removed."""

import itertools
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist


def say(text):
    os.write(1, text.encode() + b"\n")  # one write: the ranks share a pipe


dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
gate = pathlib.Path(sys.argv[1]) if sys.argv[1:] else None
for step in itertools.count():
    if step == 20:
        say("under way")
    while step == 20 and last and gate is not None and not gate.exists():
        time.sleep(0.1)
    time.sleep(0.05)
    over = torch.tensor(float(step >= 60 and not (gate is not None and gate.exists())))
    dist.all_reduce(over)
    if over.item():
        break
dist.destroy_process_group()
say("done")
