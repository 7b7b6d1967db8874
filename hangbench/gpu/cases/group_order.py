"""Two groups of the same ranks are reduced in opposite order from step 10 on. Each rank waits for the result of its first
all-reduce, which the other one would launch second."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD205"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist


def exchange(groups, device):
    for group in groups:
        x = torch.ones(1024, device=device)
        dist.all_reduce(x, group=group)
        x.sum().item()


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    tensor_parallel, data_parallel = dist.new_group([0, 1]), dist.new_group([0, 1])
    for step in range(100):
        groups = [tensor_parallel, data_parallel]
        if step == 10:
            print("ready", flush=True)
        if step >= 10 and dist.get_rank() % 2:
            groups.reverse()
        exchange(groups, device)


main()
