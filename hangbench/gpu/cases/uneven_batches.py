"""Rank 1 has 33 batches and rank 0 has 40. Rank 1 left its loop and reduces the accuracy in a group of its own; rank 0 waits for
its gradients of batch 34."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(model, optimizer, batches):
    for index, batch in enumerate(batches):
        if index == 20:
            print("ready", flush=True)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(index, loss.item(), flush=True)
    return loss


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    metrics = dist.new_group()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.randn(32, 512, device=device) for _ in range(33 if dist.get_rank() == 1 else 40)]
    loss = train(model, optimizer, batches)
    total = loss.detach().clone()
    dist.all_reduce(total, group=metrics)
    print("epoch done", total.item(), flush=True)


main()
