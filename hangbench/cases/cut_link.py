"""The link between the two hosts drops all packets in the middle of
training. Both ranks wait in all_reduce, with bytes that are never
acknowledged."""

# /// hangbench
# situation = "cut-link"
# nodes = [{}, {}]
# patience = 0.5
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce"]
# finding = "HD407"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
while True:
    dist.all_reduce(torch.ones(20_000))
