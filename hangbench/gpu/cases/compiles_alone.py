"""Rank 1's inputs get a new length in every step, so torch.compile compiles again and again there. Rank 0 waits for it in every
step, and nothing is wrong."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# also = ["HD601", "HD602"]
# nodes = [{environment = {TORCHINDUCTOR_FORCE_DISABLE_CACHES = "1", TORCHINDUCTOR_COMPILE_THREADS = "1"}}]
# ///
import torch
import torch.distributed as dist
from torch import nn


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch._dynamo.config.recompile_limit = 10**6
    torch._dynamo.config.automatic_dynamic_shapes = False
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(12)]).to(
        device
    )
    compiled = torch.compile(model) if dist.get_rank() == 1 else model
    print("ready", flush=True)
    for step in range(10**9):
        rows = 4 + step if dist.get_rank() == 1 else 4
        out = compiled(torch.randn(rows, 64, device=device)).sum(0)
        dist.all_reduce(out)
        print(step, out.mean().item(), flush=True)


main()
