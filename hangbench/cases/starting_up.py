"""The ranks import modules for a long time before their rendezvous, rank 1 longer than rank 0. This is a normal start."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# also = []
# ///
import os
import time

print("ready", flush=True)
until = time.monotonic() + (3 if os.environ["RANK"] == "0" else 60)
while time.monotonic() < until:  # imports
    sum(range(10_000))
import torch.distributed as dist

dist.init_process_group("gloo")
