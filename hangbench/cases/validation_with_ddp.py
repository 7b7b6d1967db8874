"""Rank 0 validates alone with the DDP-wrapped model, whose forward broadcasts the buffers of its BatchNorm. Rank 1 is at the
barrier after the validation and never joins that broadcast."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["broadcast", "barrier"]
# finding = "HD203"
# culprits = [0]
# victims = [1]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def validate(model):
    model.eval()
    losses = [model(torch.randn(4, 8)).mean() for _ in range(10)]
    model.train()
    return sum(losses) / len(losses)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
    print("ready", flush=True)
    for epoch in range(5):
        for batch_idx in range(20):
            model(torch.randn(4, 8)).sum().backward()
        if dist.get_rank() == 0:
            validate(model)
        dist.barrier()


main()
