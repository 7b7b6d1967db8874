"""The script contains a breakpoint() behind a condition that is true only on rank 1, and its debugger waits for a command. Rank 0
waits for rank 1 in all_gather_into_tensor."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-input"]
# operations = ["all_gather_into_tensor", ""]
# finding = "HD302"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist


def collect(value):
    out = torch.zeros(2 * len(value))
    if value[0] > 7:
        breakpoint()
    dist.all_gather_into_tensor(out, value)
    return out


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    print("ready", flush=True)
    for i in range(100):
        collect(torch.full((4,), float(i if me else 0)))


main()
