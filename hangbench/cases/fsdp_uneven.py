"""FSDP2 with loaders of different length: rank 1 has two batches fewer than rank 0, left
its loop and waits in a barrier. Rank 0 waits for it in the all-gather of the next
forward."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# finding = "HD102"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def epoch(model, batches):
    for batch_idx, inputs in enumerate(batches):
        loss = model(inputs).pow(2).mean()
        loss.backward()


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    batches = [torch.randn(4, 8) for _ in range(30 if me == 0 else 28)]
    print("ready", flush=True)
    epoch(model, batches)
    dist.barrier()


main()
