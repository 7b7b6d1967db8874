"""Both ranks have 24 documents. A rank gathers statistics after each long document, and rank 0 has more long documents. So rank 1
has done its loop and waits at the barrier, while rank 0 waits in another all_gather."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_gather", "barrier"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist

LONG = 40


def documents(rank):
    lengths = torch.Generator().manual_seed(rank)
    return [int(n) for n in torch.randint(10, 60 if rank == 0 else 45, (24,), generator=lengths)]


def gathered(length):
    found = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor([float(length)]))
    return torch.cat(found)


def digest(lengths):
    total = torch.zeros(dist.get_world_size())
    for length in lengths:
        tokens = torch.randn(length, 8).sum()
        if length > LONG:
            total += gathered(length) + tokens * 0
    return total


dist.init_process_group("gloo")
print("ready", flush=True)
digest(documents(dist.get_rank()))
dist.barrier()
