"""Rank 1 leaves out the all-reduce of step 20, because its batch is empty. All all-reduces look alike, so both continue for a
hundred steps, until rank 1 waits for the sum of the tokens, in another group, and rank 0 for rank 1's next gradient."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist


def batch_of(step, rank, device):
    rows = 0 if rank == 1 and step == 20 else 32
    return torch.randn(rows, 256, device=device)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    counters = dist.new_group()
    rank = dist.get_rank()
    weight = torch.zeros(256, device=device)
    tokens = 0
    for step in range(1000):
        batch = batch_of(step, rank, device)
        if len(batch):
            gradient = batch.mean(0)
            dist.all_reduce(gradient)
            weight -= gradient
            print(step, weight.norm().item(), flush=True)
        tokens += batch.numel()
        if step % 125 == 0:
            total = torch.tensor([tokens], device=device)
            dist.all_reduce(total, group=counters)
            print("tokens", total.item(), flush=True)
        if step == 100:
            print("ready", flush=True)


main()
