"""Rank 0 waits for a message that rank 1 never sends. Rank 1 is at the barrier after it."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-p2p","in-collective"]
# operations = ["recv","barrier"]
# finding = "HD204"
# culprits = [1]
# victims = [0]
# ///

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    dist.recv(torch.zeros(4), src=1)
dist.barrier()
