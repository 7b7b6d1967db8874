"""Rank 0 writes a checkpoint slowly, part by part, while rank 1
waits at the barrier after it. Nothing is wrong: the file
grows."""

# /// hangbench
# verdict = ["waiting"]
# states = ["checkpointing","in-collective"]
# operations = ["","barrier"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///

import sys
import tempfile
import time

import torch
import torch.distributed as dist


def save_checkpoint():
    with tempfile.TemporaryFile() as file:
        for part in range(100_000):
            file.write(b"x" * 1000)
            time.sleep(0.02)


dist.init_process_group("gloo")
print("ready", flush=True)
for step in range(10**6):
    dist.all_reduce(torch.ones(10))
    if step == 5:
        if dist.get_rank() == 0:
            save_checkpoint()
        dist.barrier()
sys.exit()
