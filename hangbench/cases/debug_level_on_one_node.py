"""TORCH_DISTRIBUTED_DEBUG=DETAIL is set on the second node only, so its ranks run
checks that the ranks of the first node do not run. Both wait in their first
collective."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD502"
# culprits = [0, 1]
# nodes = [{}, {environment = {TORCH_DISTRIBUTED_DEBUG = "DETAIL"}}]
# ready = 1
# ///
import torch
import torch.distributed as dist

print("ready", flush=True)
dist.init_process_group("gloo")
for i in range(10):
    dist.all_reduce(torch.ones(2))
