"""Rank 1 reduces a buffer of five million numbers, but rank 0 one of three million, and Gloo reports
no error. Rank 0 is in the next round's all_reduce; rank 1 still waits for the rest of the first
one."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce"]
# finding = "HD206"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist


def reduce_bucket(bucket):
    dist.all_reduce(bucket)
    return bucket / dist.get_world_size()


dist.init_process_group("gloo")
size = 5_000_000 if dist.get_rank() else 3_000_000
print("ready", flush=True)
for n in range(100):
    reduce_bucket(torch.ones(size))
