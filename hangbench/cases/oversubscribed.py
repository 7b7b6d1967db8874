"""Each of two ranks runs eight compute threads on a machine with few cores. Training continues, but slowly."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# finding = "HD505"
# severity = "warning"
# culprits = [0, 1]
# nodes = [{environment = {OMP_NUM_THREADS = "8"}}]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    print("ready", flush=True)
    for it in range(10**9):
        model(torch.randn(2048, 512)).sum().backward()


main()
