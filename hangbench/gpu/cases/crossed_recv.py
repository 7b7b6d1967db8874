"""Both ranks receive from each other before they send. No send is ever launched."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD204"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank = dist.get_rank()
    ours, theirs = torch.ones(1 << 20, device=device), torch.empty(1 << 20, device=device)
    dist.all_reduce(ours)
    for _ in range(10):
        if rank == 0:
            dist.send(ours, 1)
            dist.recv(theirs, 1)
        else:
            dist.recv(theirs, 0)
            dist.send(ours, 0)
    print(theirs.sum().item(), flush=True)
    print("ready", flush=True)
    dist.recv(theirs, 1 - rank)
    dist.send(ours, 1 - rank)
    print(theirs.sum().item(), flush=True)


main()
