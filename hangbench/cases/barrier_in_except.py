"""Rank 1 gets an error in its data, and its handler calls a barrier that the other
ranks do not call. Ranks 0 and 2 wait in the all_reduce of the batch that rank 1 gave
up."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["all_reduce", "barrier", "all_reduce"]
# finding = "HD201"
# culprits = [1]
# victims = [0, 2]
# ///
import torch
import torch.distributed as dist


def parse(sample, me):
    if me == 1 and sample == 6:
        raise ValueError("broken record")
    return torch.full((8,), float(sample))


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    print("ready", flush=True)
    for batch_idx in range(50):
        try:
            gradient = parse(batch_idx, me)
            dist.all_reduce(gradient)
        except ValueError:
            dist.barrier()


main()
