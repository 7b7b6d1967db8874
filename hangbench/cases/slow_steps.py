"""Every step computes for three seconds before its all-reduce. Nothing is wrong."""

# /// hangbench
# verdict = ["healthy","waiting"]
# ///

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
while True:
    until = time.monotonic() + 3
    while time.monotonic() < until:
        torch.randn(100, 100) @ torch.randn(100, 100)
    dist.all_reduce(torch.ones(10))
