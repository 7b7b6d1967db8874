"""Lightning Fabric trains on two processes that it launched itself. Nothing is wrong."""

# /// hangbench
# requires = ["lightning-fabric"]
# launch = "itself"
# verdict = ["healthy", "waiting"]
# ///
import torch
from lightning_fabric import Fabric


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(64, 64)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    print("ready", flush=True)
    for batch_idx in range(10**9):
        optimizer.zero_grad()
        fabric.backward(model(torch.randn(256, 64)).sum())
        optimizer.step()


main()
