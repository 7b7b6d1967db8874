"""At step 10, rank 1 pads its features to twice the rows of rank 0, and NCCL reports no error: its one all-reduce pairs up with
two of rank 0's. At the end, rank 1's last all-reduce has no partner, and rank 0 waits in the group of the metrics."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD206"
# culprits = [0, 1]
# needs_card = true
# ///
import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda")
    dist.init_process_group("nccl")
    metrics = dist.new_group()
    rank = dist.get_rank()
    total = torch.ones(1, device=device)
    dist.all_reduce(total, group=metrics)
    for step in range(20):
        rows = 8192 if rank == 1 and step == 10 else 4096
        features = torch.ones(rows, 1024, device=device)
        dist.all_reduce(features)
        print(step, features.sum().item(), flush=True)
        if step == 8:
            print("ready", flush=True)
    dist.all_reduce(total, group=metrics)
    print("done", total.item(), flush=True)


main()
