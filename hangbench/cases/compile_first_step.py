"""torch.compile compiles the first step for many seconds on both
ranks; for some time only the compilers work. Nothing is
wrong."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# nodes = [{environment = {TORCHINDUCTOR_FORCE_DISABLE_CACHES = "1", TORCHINDUCTOR_COMPILE_THREADS = "1"}}]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def net():
    layers = [torch.nn.Linear(64, 64) for _ in range(12)]
    return torch.nn.Sequential(
        *(torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.LayerNorm(64)) for layer in layers)
    )


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net())
    compiled = torch.compile(model)
    print("ready", flush=True)
    for n in range(100_000):
        compiled(torch.randn(4 + n // 2, 64)).sum().backward()


main()
