"""Mixture of experts: the layers of one rank get no token of a batch, so it leaves out their exchange and goes on to the
gradients. All ranks are in the same batch."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD203"
# culprits = [1]
# victims = [0, 2]
# ///

import os

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["RANK"])


class Exchange(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        tokens = x[x[:, 0] > 0]
        if tokens.size(0) == 0:
            return x
        counts = torch.ones(3, dtype=torch.int64)
        dist.all_to_all_single(torch.empty_like(counts), counts)
        return self.inner(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Exchange() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).detach().abs()
        return x


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    model = Model()
    for batch in range(100):
        x = torch.ones(8, 4)
        if batch == 20 and rank == 1:
            x = -100 * x
        model(x)
        average(model)


main()
