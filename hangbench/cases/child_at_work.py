"""Rank 0 builds its index in a child process that computes, while rank 1 waits for it in a broadcast. Nothing is
wrong."""

# /// hangbench
# verdict = ["waiting"]
# states = ["", "in-collective"]
# operations = ["", "broadcast"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
for n in range(100):
    flag = torch.ones(1)
    if n == 4 and dist.get_rank() == 0:
        subprocess.run([sys.executable, "-c", "while True: sum(range(1000))"], check=True)
    dist.broadcast(flag, src=0)
