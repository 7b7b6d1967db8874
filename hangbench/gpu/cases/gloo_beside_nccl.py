"""Objects are gathered in a Gloo group beside the NCCL group of the gradients. Rank 1 waits for a file first, so rank 0 waits for
it on the host, and all NCCL calls have finished."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import os
import time

import torch
import torch.distributed as dist


def evaluate(rank):
    while rank == 1 and not os.path.exists("/nonexistent/references.json"):
        time.sleep(0.2)
    return {"rank": rank}


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    on_host = dist.new_group(backend="gloo")
    rank = dist.get_rank()
    x = torch.ones(4096, device=device)
    for step in range(100):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        print(step, x.sum().item(), flush=True)
        if step == 30:
            print("ready", flush=True)
            scores = [None] * dist.get_world_size()
            dist.all_gather_object(scores, evaluate(rank), group=on_host)


main()
