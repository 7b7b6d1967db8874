"""Both ranks have launched all their all-reduces. Rank 1's stream is busy with a kernel that takes minutes, so its next
all-reduce does not begin, and rank 0's spins on the card."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD702"
# victims = [0, 1]
# needs_card = true
# ///
import torch
import torch.distributed as dist


def sample(steps):
    """A kernel that does not come to an end."""
    for _ in range(steps):
        torch.cuda._sleep(10**10)


def main():
    dist.init_process_group("nccl")
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
    print(x.sum().item(), flush=True)
    print("ready", flush=True)
    if dist.get_rank() == 1:
        sample(200)
    dist.all_reduce(x)
    dist.all_reduce(x)
    print(x.sum().item(), flush=True)


main()
