"""Rank 0 repeatedly writes a large checkpoint with torch.save
while rank 1 waits at a barrier. Nothing is wrong: the disk is
busy."""

# /// hangbench
# ranks = 2
# verdict = ["waiting"]
# also = ["HD505"]
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    big = {str(i): torch.randn(500, 1000) for i in range(100)}
    while True:
        torch.save(big, "big.pt")
        os.sync()
dist.barrier()
