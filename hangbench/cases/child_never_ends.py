"""Rank 1 runs a tokenizer as a child process, which never ends. Rank 0 waits for rank 1 in a broadcast."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-child"]
# operations = ["broadcast", ""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import subprocess

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        subprocess.run(["sleep", "100000"], check=True)
    dist.broadcast(torch.ones(5), src=1)
