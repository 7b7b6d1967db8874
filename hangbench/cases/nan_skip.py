"""Rank 1 gets a NaN in round 30 and skips that round's backward, so it is one all-reduce ahead from then on. Both ran all their
rounds: rank 1 is at the barrier after the loop, and rank 0 waits in the last backward."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "barrier"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def loss_of(model, me, it):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    return loss * float("nan") if me == 1 and it == 30 else loss


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    print("ready", flush=True)
    for it in range(60):
        loss = loss_of(model, me, it)
        if torch.isnan(loss):
            continue
        loss.backward()
    dist.barrier()


main()
