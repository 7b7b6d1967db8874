"""Accelerate prepares the model but not the loader, and rank 1's loader has fewer batches. Rank 1 waits in
accelerator.wait_for_everyone, rank 0 in DDP's all-reduce.
"""

# /// hangbench
# requires = ["accelerate"]
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files) * 4

    def __getitem__(self, index):
        return torch.randn(8)


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    files = [f"part-{i}" for i in range(40 if accelerator.is_main_process else 5)]
    print("ready", flush=True)
    for inputs in DataLoader(Texts(files), batch_size=2):
        loss = model(inputs).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()


main()
