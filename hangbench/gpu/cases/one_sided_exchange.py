"""Rank 0 exchanges halos once more after the loop, in a batch of isend and irecv under `if rank == 0`. Rank 1 is at the barrier
behind it."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD204"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist


def exchange(ours, theirs, peer):
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, ours, peer), dist.P2POp(dist.irecv, theirs, peer)])
    for work in works:
        work.wait()
    return theirs


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank = dist.get_rank()
    ours, theirs = torch.ones(1 << 16, device=device), torch.empty(1 << 16, device=device)
    for step in range(10):
        exchange(ours, theirs, 1 - rank)
    print(theirs.sum().item(), flush=True)
    print("ready", flush=True)
    if rank == 0:
        print(exchange(ours, theirs, 1).sum().item(), flush=True)
    dist.barrier()


main()
