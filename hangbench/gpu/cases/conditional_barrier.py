"""After its checkpoint, rank 0 alone calls the barrier of the checkpoint group, because it is under `if rank == 0`. Rank 1 waits
for rank 0's gradients of the next step."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD203"
# culprits = [0]
# victims = [1]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(rank, group):
    if rank == 0:
        dist.barrier(group=group)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    savers = dist.new_group()
    dist.barrier(group=savers)
    model = DistributedDataParallel(nn.Linear(512, 512).to(device))
    for epoch in range(3):
        for step in range(10):
            loss = model(torch.randn(32, 512, device=device)).square().mean()
            loss.backward()
            print(epoch, step, loss.item(), flush=True)
        print("ready", flush=True)
        save(dist.get_rank(), savers)


main()
