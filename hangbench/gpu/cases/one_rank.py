"""A run of one rank, as on a laptop or in a notebook: its all-reduces finish by themselves."""

# /// hangbench
# ranks = 1
# verdict = ["healthy"]
# ///
import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    weight = torch.randn(1024, 1024, device=device)
    for step in range(10**9):
        if step == 20:
            print("ready", flush=True)
        out = weight @ torch.randn(1024, 64, device=device)
        dist.all_reduce(out)
        if step % 10 == 0:
            print(step, out.mean().item(), flush=True)


main()
