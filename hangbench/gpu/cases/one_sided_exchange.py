"""Rank 0 exchanges halos once more than rank 1, in a batch of isend and irecv. Rank 1 has one microbatch fewer and is at the
barrier behind it."""

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
    microbatches = 11 - rank
    for index in range(microbatches):
        if index == 9:
            print("ready", flush=True)
        print(index, exchange(ours, theirs, 1 - rank).sum().item(), flush=True)
    dist.barrier()


main()
