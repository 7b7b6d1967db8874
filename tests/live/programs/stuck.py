"""What the programs with an adapter share: a model of which rank 1 gets stuck, and data for it."""

import os
import time

import torch
from torch.utils.data import Dataset


class Numbers(Dataset):
    def __init__(self, size=400):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(torch.nn.Module):
    """Rank 1 sleeps for ever in its tenth training step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.calls = 0

    def forward(self, x, labels):
        self.calls += self.training
        if self.calls == 10 and os.environ["RANK"] == "1":
            time.sleep(10_000)
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}
