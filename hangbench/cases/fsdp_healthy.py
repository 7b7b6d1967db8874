"""FSDP2 trains on two ranks with a loop that is fed by a generator. Nothing is wrong."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def stream():
    while True:
        yield torch.randn(64, 128)


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Linear(128, 128))
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    print("ready", flush=True)
    for inputs in stream():
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
