"""The two hosts are connected by a link of 2 Mbit/s, over which every step
sends its gradients. The run makes progress, and the link takes most of the
time."""

# /// hangbench
# situation = "slow-link"
# nodes = [{}, {}]
# verdict = ["healthy", "waiting"]
# finding = "HD603"
# severity = "warning"
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    print("ready", flush=True)
    for batch_idx in range(10**9):
        model(torch.randn(8, 256)).sum().backward()


main()
