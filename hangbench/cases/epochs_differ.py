"""Node 1 was started with --epochs 2 and node 0 with --epochs 3, over the same data. Rank 1 has finished and waits at the
last barrier, rank 0 waits for it in the third epoch."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "barrier"]
# finding = "HD501"
# culprits = [0, 1]
# nodes = [{arguments = ["--epochs=3", "--seed=1"]}, {arguments = ["--epochs=2", "--seed=2"]}]
# ///
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int)
    return parser.parse_args()


def fit(model, loader, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            torch.nn.functional.mse_loss(model(x), y).backward()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=4)
    print("ready", flush=True)
    fit(model, loader, args.epochs)
    dist.barrier()


main()
