"""A loop on Accelerate, under the watchdog."""

import torch
from accelerate import Accelerator
from stuck import Model, Numbers
from torch.utils.data import DataLoader

from hangdoc.watchdog.accelerate import watchdog

accelerator = Accelerator(cpu=True)
model = Model()
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01),
                                               DataLoader(Numbers(), 4))  # fmt: skip
with watchdog(accelerator, timeout=5) as active:
    active.follow(model, optimizer)
    for batch in active.watch(loader):
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
