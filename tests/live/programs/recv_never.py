"""Rank 0 waits for a message that rank 1 never sends."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    dist.recv(torch.zeros(4), src=1)
dist.barrier()
