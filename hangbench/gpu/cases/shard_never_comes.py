"""Rank 1 of 3 waits for a file that never appears. The others have launched the next all-reduce and wait for it. NCCL's RAS is
off."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0, 2]
# nodes = [{environment = {NCCL_RAS_ENABLE = "0"}}]
# ///
import os
import time

import torch
import torch.distributed as dist


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.2)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    else:
        dist.init_process_group("gloo")
    x = torch.ones(4096, device=device)
    for step in range(1000):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        print(step, x.sum().item(), flush=True)
        if step == 20:
            print("ready", flush=True)
            if dist.get_rank() == 1:
                wait_for("/nonexistent/shard-21.bin")


main()
