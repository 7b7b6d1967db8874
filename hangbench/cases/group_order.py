"""Two groups of the same ranks are reduced in opposite order: even ranks
start with one group, odd ranks with the other. Neither collective can
start."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce"]
# finding = "HD205"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist


def exchange(groups):
    for group in groups:
        dist.all_reduce(torch.ones(16), group=group)


dist.init_process_group("gloo")
tensor_parallel, data_parallel = dist.new_group([0, 1]), dist.new_group([0, 1])
print("ready", flush=True)
for it in range(100):
    both = [tensor_parallel, data_parallel]
    if it > 4 and dist.get_rank() % 2:
        both.reverse()
    exchange(both)
