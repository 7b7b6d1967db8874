"""Trains for ever on a CPU, in the type and the way that the first argument says."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# nanoGPT's own lines: a type that a CPU never uses (its autocast is a nullcontext there).
device_type = "cpu"
dtype = "float16"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
unused = torch.amp.autocast("cpu", dtype=ptdtype)


def network(kind=torch.float32):
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).to(kind)


def begun(step):
    if step == 2:
        print("begins", flush=True)


class Trainer:
    def __init__(self):
        self.model = DistributedDataParallel(network(torch.bfloat16))

    def fit(self):
        for step in range(10**9):
            self.model(torch.randn(64, 256, dtype=torch.bfloat16)).sum().backward()
            begun(step)


def inline():
    net = network()
    for step in range(10**9):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(200):
                loss = net(torch.randn(64, 256)).sum()
        loss.backward()
        begun(step)


dist.init_process_group("gloo")
if sys.argv[1] == "parameters":
    Trainer().fit()
elif sys.argv[1] == "inline":
    inline()
elif sys.argv[1] == "autocast":
    ctx = torch.amp.autocast("cpu", dtype=torch.bfloat16)
model = network()
copy = torch.nn.Linear(256, 64).to(torch.bfloat16)  # a small part in another type is not what is trained
raw = torch.randn(64, 256).to(torch.float16)  # nor is data on its way to float32
for step in range(10**9):
    with ctx:
        loss = model(raw.float()).sum()
    loss.backward()
    begun(step)
