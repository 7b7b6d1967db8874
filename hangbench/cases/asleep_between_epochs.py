"""All ranks sleep between two epochs, according to a schedule. No rank waits for another."""

# /// hangbench
# verdict = ["waiting"]
# states = ["sleeping", "sleeping"]
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for epoch in range(100):
    for i in range(20):
        dist.all_reduce(torch.ones(8))
    if epoch == 0:
        print("ready", flush=True)
    time.sleep(60)
