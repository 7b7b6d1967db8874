"""Plain DDP at full speed. Nothing is wrong."""

# /// hangbench
# verdict = ["healthy"]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(10**9):
        if step == 5:
            print("ready", flush=True)
        loss = model(torch.randn(256, 1024, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item(), flush=True)


main()
