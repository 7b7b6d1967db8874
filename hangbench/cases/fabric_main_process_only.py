"""Lightning Fabric: rank 0 alone calls fabric.barrier() under `if
fabric.is_global_zero`. Rank 1 continued with the next step and waits in its
all-reduce."""

# /// hangbench
# requires = ["lightning-fabric"]
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["barrier", "all_reduce"]
# finding = "HD203"
# culprits = [0]
# victims = [1]
# ///
import torch
from lightning_fabric import Fabric


def save(fabric, step):
    if fabric.is_global_zero:
        torch.save({"step": step}, f"checkpoint-{step}.pt")
        fabric.barrier()


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    print("ready", flush=True)
    for i in range(100):
        optimizer.zero_grad()
        fabric.backward(model(torch.randn(4, 8)).sum())
        optimizer.step()
        if i == 7:
            save(fabric, i)


main()
