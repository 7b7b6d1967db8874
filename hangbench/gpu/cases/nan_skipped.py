"""Rank 1 gets a NaN at step 33 and skips the backward of that step, so from then on it is one all-reduce behind. The metrics are
reduced every 20 steps in a group of their own: at step 40, rank 1 waits for rank 0's metrics, and rank 0 waits for rank 1's
gradients."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def loss_of(model, rank, step, device):
    loss = model(torch.randn(32, 512, device=device)).square().mean()
    return loss * float("nan") if rank == 1 and step == 33 else loss


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    metrics = dist.new_group()
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1000):
        loss = loss_of(model, rank, step, device)
        if step == 20:
            print("ready", flush=True)
        if torch.isnan(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            total = loss.detach().clone()
            dist.all_reduce(total, group=metrics)
            print(step, total.item(), flush=True)


main()
