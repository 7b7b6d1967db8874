"""All ranks wait for a kernel of their own that takes more than a minute. No collective is pending, and nothing is wrong."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# needs_card = true
# ///
import torch
import torch.distributed as dist


def solve():
    """One long kernel after the other, two minutes in all."""
    for _ in range(24):
        torch.cuda._sleep(10**10)
    torch.cuda.synchronize()


def main():
    dist.init_process_group("nccl")
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
    print(x.sum().item(), flush=True)
    print("ready", flush=True)
    while True:
        solve()
        dist.all_reduce(x)
        print(x.sum().item(), flush=True)


main()
