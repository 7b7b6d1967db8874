"""Every 7th batch gives a NaN on all ranks, and all of them skip its backward. They agree, so nothing is wrong."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    metrics = dist.new_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(10**9):
        loss = model(torch.randn(32, 512, device=device)).square().mean()
        if step % 7 == 3:
            loss = loss * float("nan")
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
