"""Three stages of a pipeline pass activations on, and the last one computes longest. Nothing is wrong."""

# /// hangbench
# ranks = 3
# verdict = ["healthy", "waiting"]
# also = ["HD601"]
# ///
import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layer = torch.nn.Linear(512, 512).to(device)
    with torch.no_grad():
        for step in range(10**9):
            if step == 10:
                print("ready", flush=True)
            x = torch.randn(256, 512, device=device)
            if rank > 0:
                dist.recv(x, rank - 1)
            for _ in range(5 * (rank + 1)):
                x = layer(x)
            if rank < world - 1:
                dist.send(x, rank + 1)
            if step % 10 == 0:
                print(step, x.mean().item(), flush=True)


main()
